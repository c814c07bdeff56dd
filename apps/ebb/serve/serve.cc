#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include "apps/common/models/built_in_models.h"
#include "apps/common/models/known_models.h"
#include "apps/common/models/model_name.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/output.h"
#include "apps/common/terminal/say.h"
#include "apps/ebb/serve/commands.h"
#include "apps/ebb/serve/passed_sockets.h"
#include "apps/ebb/serve/reach.h"
#include "apps/ebb/serve/serve_options.h"
#include "src/server/server.h"

namespace ebb::cli {
namespace {

// Returns the model's name in requests: the name that -m gives, or that of the file.
std::string ModelId(const std::string& given) {
  if (given.empty()) return std::string(KnownModels().front().name);
  if (IsBuiltInModel(given) || FindKnownModel(given) != nullptr) return given;
  if (const auto name = ParseModelName(given); name.ok()) {
    if (name->source != ModelName::Source::kUrl) return given.substr(given.find(':') + 1);
    return std::filesystem::path(name->url.substr(0, name->url.find('?'))).stem().string();
  }
  return std::filesystem::path(given).stem().string();
}

server::ServerOptions ServerOptionsOf(const CliOptions& options) {
  using OnEnd = GenerateOptions::OnEnd;
  const std::string& path = options.model.path;
  server::ServerOptions wanted = options.Of<ServeInput>().server;
  wanted.prefix_store.lifetime = wanted.keeping.lifetime;
  wanted.model_file =
      path.empty() ? ModelId(path) : std::filesystem::path(path).filename().string();
  server::RequestDefaults& defaults = wanted.defaults;
  defaults.aliases.push_back(ModelId(path));
  defaults.model_id = defaults.aliases.front();
  defaults.sampling = options.sampling;
  defaults.engine = options.engine;
  defaults.engine.max_stall_seconds = options.Of<ServeInput>().max_stall_ms / 1000.0;
  defaults.session = options.session;
  defaults.generate = {.max_tokens = options.max_tokens,
                       .stops = options.stops,
                       .on_end = options.ignore_eos ? OnEnd::kIgnore : OnEnd::kStop,
                       .thinking_budget = options.thinking_budget};
  return wanted;
}

// Signals blocks the signals in all threads, so that only the thread that started the server
// receives them, by waiting.
class Signals {
 public:
  // Hangup is the meaning of SIGHUP: the terminal was closed, or files must be read again. In the
  // first case SIGHUP stays ignored if it was, as under nohup.
  enum class Hangup { kEnds, kReloads };
  explicit Signals(Hangup hangup) {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    struct sigaction before = {};
    sigaction(SIGHUP, nullptr, &before);
    const bool is_ignored = before.sa_handler == SIG_IGN;
    if (hangup == Hangup::kReloads || !is_ignored) sigaddset(&set_, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
  }
  int Wait() {
    int signal = 0;
    sigwait(&set_, &signal);
    return signal;
  }
  // Waits for a signal; returns nothing if none comes in this time.
  std::optional<int> WaitFor(std::chrono::milliseconds time) {
    const timespec limit = {.tv_sec = time.count() / 1000,
                            .tv_nsec = time.count() % 1000 * 1'000'000};
    const int signal = sigtimedwait(&set_, nullptr, &limit);
    return signal > 0 ? std::optional(signal) : std::nullopt;
  }
  // Unblocks the signals, so that the next one ends the process.
  void Release() { pthread_sigmask(SIG_UNBLOCK, &set_, nullptr); }

 private:
  sigset_t set_ = {};
};

// Reads the file of keys; returns null if no file is named.
Result<std::shared_ptr<const server::KeyRing>> ReadKeys(const std::string& path) {
  if (path.empty()) return std::shared_ptr<const server::KeyRing>();
  EBB_ASSIGN_OR_RETURN(server::KeyRing keys, server::KeyRing::Read(path));
  return std::make_shared<const server::KeyRing>(std::move(keys));
}

// Opens the access log; returns null without --access-log.
Result<std::shared_ptr<server::AccessLog>> OpenAccessLog(const ServeInput& serve) {
  if (serve.access_log.empty()) return std::shared_ptr<server::AccessLog>();
  return server::AccessLog::Open(serve.access_log, serve.access_log_format);
}

// Reads the keys again and reopens the access log, if these files are in use. Reports a file that
// cannot be read or opened and keeps the present keys or log.
void Reload(const ServeInput& serve, server::AccessLog* log, server::Server* server) {
  if (log != nullptr) {
    if (const Status status = log->Reopen(); !status.ok()) Fail(status);
  }
  if (serve.api_keys.empty()) return;
  const auto keys = ReadKeys(serve.api_keys);
  if (keys.ok()) return server->SetKeys(*keys);
  Fail(keys.status().WithPrefix("the keys stay as they were"));
}

// Rejects --prefix-store without the options that it depends on.
Status CheckPrefixStore(const ServeInput& serve) {
  if (!serve.prefix_store_given || serve.server.prefix_store.most_bytes == 0) return OkStatus();
  if (!serve.server.sessions.has_value()) {
    return InvalidArgument("--prefix-store: expected --sessions with it, found none");
  }
  if (serve.server.driver.prefix_cache_bytes == 0) {
    return InvalidArgument("--prefix-store: expected a --prefix-cache with it, found off");
  }
  return OkStatus();
}

// Returns the server's addresses as text: "http://127.0.0.1:8080 and http://[::1]:8080",
// "unix:/path".
std::string Addresses(const server::Server& server) {
  std::string text;
  for (const std::string& address : server.addresses()) {
    text += fmt::format("{}{}{}", text.empty() ? "" : " and ", server.port() > 0 ? "http://" : "",
                        address);
  }
  return text;
}

// Waits until all requests are answered, `seconds` have passed, or a signal other than SIGHUP
// comes.
void WaitUntilDrained(const server::Server& server, int seconds, Signals* signals) {
  constexpr std::chrono::milliseconds kInterval(20);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!server.is_drained() && std::chrono::steady_clock::now() < end) {
    const std::optional<int> signal = signals->WaitFor(kInterval);
    if (signal.has_value() && signal != SIGHUP) return;
  }
}

ExitCode MakeKey(const ServeInput& serve) {
  if (serve.api_keys.empty()) {
    return Fail(InvalidArgument("--new-key: expected --api-keys FILE with it, found none"));
  }
  const Result<std::string> key =
      server::AddNewKey(serve.api_keys, serve.new_key, serve.new_key_is_admin);
  if (!key.ok()) return Fail(key.status());
  const Status shown = WriteToStdout(*key + "\n");
  if (!shown.ok()) return Fail(shown);
  Say("This key is shown once. Start a server that asks for it, open to the network:\n"
      "  ebb serve --host 0.0.0.0 --api-keys {}\n"
      "The chat page asks for the key; other clients take it as their API key.\n",
      serve.api_keys);
  return ExitCode::kOk;
}

}  // namespace

ExitCode RunServe(const CliOptions& given) {
  CliOptions options = given;
  auto sockets = TakePassedSockets();
  if (!sockets.ok()) return Fail(sockets.status());
  if (!sockets->ignored.empty()) Say("ebb: {}\n", sockets->ignored);
  const ServeInput& serve = options.Of<ServeInput>();
  if (!serve.new_key.empty()) return MakeKey(serve);
  if (serve.new_key_is_admin) return Fail(InvalidArgument("--admin: goes with --new-key NAME"));
  if (const Status status = CheckPrefixStore(serve); !status.ok()) return Fail(status);
  const auto keys = ReadKeys(serve.api_keys);
  if (!keys.ok()) return Fail(AsUsage(keys.status()));
  const auto log = OpenAccessLog(serve);
  if (!log.ok()) return Fail(AsUsage(log.status()));
  const auto model = OpenModel(options);
  if (!model.ok()) return Fail(model.status());
  if (const Status status = OpenDraftModel(*model, &options); !status.ok()) return Fail(status);
  // A server with a configuration file, keys or a log file runs as a service, without a terminal
  // that could go, so SIGHUP means to read its files again.
  const bool has_files = *keys != nullptr || !serve.config.empty() ||
                         (!serve.access_log.empty() && serve.access_log != "stderr");
  Signals signals(has_files ? Signals::Hangup::kReloads : Signals::Hangup::kEnds);
  server::ServerOptions wanted = ServerOptionsOf(options);
  wanted.sockets = std::move(sockets->descriptors);
  wanted.keys = *keys;
  wanted.access_log = *log;
  const auto server = server::Server::Start(*model, wanted);
  if (!server.ok()) return Fail(server.status(), options.shared);
  const Status ready = WriteTextToStdout(
      fmt::format("ebb: {} at {}\n", ModelId(options.model.path), Addresses(**server)));
  if (*keys != nullptr) {
    const bool shows_figures = wanted.dashboard != server::DashboardMode::kOff;
    SayText(KeysText(serve.api_keys, (*keys)->size(), shows_figures && !(*keys)->has_admin()));
  }
  SayText(ReachText((*server)->addresses(), *keys != nullptr, AddressOnNetwork));
  if (const std::string why = (*model)->batch_dependence(); !why.empty()) {
    Say("ebb: the bits of an answer depend, by rounding, on concurrent requests: {}\n", why);
  }
  if (!ready.ok()) return Fail(ready);
  int signal = signals.Wait();
  for (; has_files && signal == SIGHUP; signal = signals.Wait()) {
    Reload(serve, log->get(), server->get());
  }
  if (signal != SIGINT) {
    (*server)->Drain();
    WaitUntilDrained(**server, serve.drain_seconds, &signals);
  }
  signals.Release();
  return ExitCode::kOk;
}

}  // namespace ebb::cli
