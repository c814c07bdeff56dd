#include "apps/ebb/setup.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include "apps/ebb/exit_code.h"
#include "apps/ebb/pull/built_in_models.h"
#include "apps/ebb/pull/known_models.h"
#include "ebb/session_file.h"

namespace ebb::cli {
namespace {

constexpr int kInterruptedExit = static_cast<int>(ExitCode::kInterrupted);
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler writes it

std::atomic<const char*> exit_bytes{nullptr};
static_assert(std::atomic<const char*>::is_always_lock_free);

// Calls nothing but what a signal handler may.
extern "C" void OnInterrupt(int signal) {
  if (!interrupted.exchange(true, std::memory_order_relaxed)) return;
  const char* words = exit_bytes.load(std::memory_order_relaxed);
  const bool written = words == nullptr || write(STDOUT_FILENO, words, strlen(words)) >= 0;
  (void)written;  // the process ends either way, once this handler returns
  std::signal(signal, SIG_DFL);
  raise(signal);
}

// Calls nothing but what a signal handler may.
extern "C" void OnInterruptAtPrompt(int) {
  constexpr char kMessage[] = "ebb: interrupted\n";
  if (write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) < 0) _exit(kInterruptedExit);
  _exit(kInterruptedExit);
}

void Arm(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // No SA_RESTART: waiting for input ends.
  sigaction(signal, &action, nullptr);
}

}  // namespace

Result<std::shared_ptr<const Model>> OpenModel(const CliOptions& options) {
  ModelOptions model = options.model;
  model.for_device = options.engine.device.kind == DeviceKind::kBackend;
  if (IsBuiltInModel(model.path)) {
    EBB_ASSIGN_OR_RETURN(model.path, BuiltInModelPath(model.path));
  } else {
    EBB_ASSIGN_OR_RETURN(model.path, FindModelFile(model.path));
  }
  return Model::Load(model);
}

Result<Setup> OpenSetup(const CliOptions& options) {
  EBB_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, OpenModel(options));
  return OpenSetup(std::move(model), options);
}

Result<Setup> OpenSetup(std::shared_ptr<const Model> model, const CliOptions& options) {
  Setup setup = {.model = std::move(model)};
  EBB_ASSIGN_OR_RETURN(setup.engine, Engine::Create(setup.model, options.engine));
  if (!options.session_file.empty()) {
    Result<ResumedSession> resumed =
        ResumeSession(*setup.engine, options.session_file, options.session);
    if (resumed.ok()) {
      setup.session = std::move(resumed->session);
      setup.resumed = std::move(resumed->extra);
      return setup;
    }
    if (resumed.status().code() != StatusCode::kNotFound) return resumed.status();
  }
  EBB_ASSIGN_OR_RETURN(setup.session, setup.engine->OpenSession(options.session));
  return setup;
}

const std::atomic<bool>* InstallInterruptHandler() {
  interrupted.store(false);
  Arm(SIGINT, OnInterrupt);
  Arm(SIGTERM, OnInterrupt);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the limit on files fails, as on a full disk
  return &interrupted;
}

bool Interrupted() { return interrupted.load(std::memory_order_relaxed); }

void SetExitBytes(const char* words) { exit_bytes.store(words, std::memory_order_relaxed); }

void EndOnInterrupt() {
  Arm(SIGINT, OnInterruptAtPrompt);
  Arm(SIGTERM, OnInterruptAtPrompt);
}

uint64_t PeakResidentBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  constexpr uint64_t kKiB = 1024;
  return static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
}

}  // namespace ebb::cli
