#include <csignal>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <pthread.h>

#include "src/cli/built_in_models.h"
#include "src/cli/commands.h"
#include "src/cli/known_models.h"
#include "src/cli/output.h"
#include "src/cli/setup.h"
#include "src/server/server.h"

namespace ebb::cli {
namespace {

// What requests call the model: the name that -m takes, or the file's.
std::string ModelId(const std::string& given) {
  if (given.empty()) return std::string(KnownModels().front().name);
  if (IsBuiltInModel(given) || FindKnownModel(given) != nullptr) return given;
  return std::filesystem::path(given).stem().string();
}

server::ServerOptions ServerOptionsOf(const CliOptions& options) {
  using OnEnd = GenerateOptions::OnEnd;
  const ServeInput& serve = options.serve;
  server::ServerOptions wanted = {
      .host = serve.host,
      .port = static_cast<uint16_t>(serve.port),
      .driver = {.most_waiting = static_cast<size_t>(serve.max_queue),
                 .most_running = static_cast<size_t>(serve.max_running)},
      .metrics_alias = serve.metrics_alias,
      .defaults = {.model_id = ModelId(options.model.path),
                   .sampling = options.sampling,
                   .engine = options.engine,
                   .session = options.session,
                   .generate = {.max_tokens = options.max_tokens,
                                .stops = options.stops,
                                .on_end = options.ignore_eos ? OnEnd::kIgnore : OnEnd::kStop,
                                .thinking_budget = options.thinking_budget}}};
  wanted.defaults.engine.max_stall_seconds = serve.max_stall_ms / 1000.0;
  return wanted;
}

// Signals that end the server are waited for by the thread that started it, so that the others
// must not take them.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
  }
  // Behind it a second signal ends the process.
  void Wait() {
    int signal = 0;
    sigwait(&set_, &signal);
    pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
  }

 private:
  sigset_t set_ = {};
};

}  // namespace

ExitCode RunServe(const CliOptions& options) {
  const auto model = OpenModel(options);
  if (!model.ok()) return Fail(model.status());
  Signals signals;
  const auto server = server::Server::Start(*model, ServerOptionsOf(options));
  if (!server.ok()) return Fail(server.status());
  const Status ready = WriteToStdout(
      fmt::format("ebb: {} at http://{}\n", ModelId(options.model.path), (*server)->address()));
  if (!ready.ok()) return Fail(ready);
  signals.Wait();
  return ExitCode::kOk;
}

}  // namespace ebb::cli
