// Invariants:
// 1. Only the thread touches the engine, sessions, samplers and `actives`; what lies under `mutex`
//    is what it exchanges with others.
// 2. A job that decodes has a token that is not appended yet. It is told about, so that it is
//    appended before anything else happens to the job, however often a step is refused.
// 3. A job ends once: it is told, and gone from `actives`, in the same round.
// 4. T0 counts as full only when no prefix is left that could go.
#ifndef EBB_SERVER_ENGINE_DRIVER_IMPL_H_
#define EBB_SERVER_ENGINE_DRIVER_IMPL_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ebb/generate.h"
#include "src/server/engine/driver.h"
#include "src/server/engine/prefix_cache.h"
#include "src/server/engine/schedule.h"
#include "src/server/engine/session_shelf.h"

namespace ebb::server {

using Clock = std::chrono::steady_clock;

// How a waiting job depends on the session store.
enum class Lookup {
  kNone,    // not at all
  kAsked,   // the store is looking up its prompt
  kQueued,  // the store is looking up another prompt of the same key; its own one is next
};

// A job beside its session.
struct Active {
  Job job;
  JobState state;
  std::unique_ptr<Session> session;        // null while it waits
  size_t text_end = 0;                     // bytes of the answer's text, with log-probabilities
  std::unique_ptr<Generation> generation;  // null until the prompt is read
  std::optional<Token> pending;            // chosen and shown, not appended
  int cached_tokens = 0;                   // of the prompt
  Lookup lookup = Lookup::kNone;
  JobUpdate update;  // not sent yet
  bool has_news = false;
  [[nodiscard]] bool HasBegunPrompt() const { return session != nullptr && job.prompt.empty(); }
  // Seconds since the driver began; 0: not yet.
  double waiting_since = 0;  // while it waits or is parked
  double begun = 0;
  double first_token = 0;
  double last_token = 0;
  size_t prompt_tokens = 0;
  JobProgress progress;
  bool ends_thought = false;  // though its answer has not begun
  // For a session that stays: its answer, the time since which it is unsaved, and its error.
  AnswerSoFar answer;
  bool in_thought = false;
  int thought_tokens = 0;   // that this job generated
  size_t saved_tokens = 0;  // of the answer
  SessionTrouble trouble = SessionTrouble::kNone;
};

// Mean of late.
inline void Blend(double value, double* mean) {
  *mean = *mean == 0 ? value : 0.9 * *mean + 0.1 * value;
}

// An arena without a cap has one beyond any memory.
inline bool IsCap(size_t cap_bytes) { return cap_bytes > 0 && cap_bytes < size_t{1} << 62; }

struct Driver::Impl {
  Impl(std::unique_ptr<Engine> engine_in, const DriverOptions& options_in, Tell tell_in)
      : engine(std::move(engine_in)),
        options(options_in),
        tell(std::move(tell_in)),
        prefixes(options_in.prefix_cache_bytes) {
    machine.most_running = options.most_running;
    const size_t cap = engine->arena_accounting(Tier::kT0).cap_bytes;
    if (IsCap(cap)) t0_cap = cap;
    machine.t0_bytes = t0_cap;
    const auto& tiers = engine->options().tiers;
    if (tiers.has_value() && tiers->t1_cap_bytes > 0) machine.t1_bytes = tiers->t1_cap_bytes;
    // A page of each stream holds as many tokens as it has rows.
    if (const auto needs = engine->CountNeeds({}, 1, 1); needs.ok()) page_bytes = needs->t0_bytes;
    Tell();  // caps are shown before the first job
    thread = std::thread([this] { Run(); });
  }
  ~Impl() { Stop(); }

  void Stop() {
    {
      const std::lock_guard lock(mutex);
      stopped = true;
    }
    wake.notify_one();
    if (thread.joinable()) thread.join();
    constexpr double kMostSeconds = 20;
    if (options.prefix_store != nullptr) options.prefix_store->Stop(kMostSeconds);
  }

  void Run();
  // Takes what came; after a plan that did nothing, waits for it. False: it is over.
  bool TakeIn(const Plan& last);
  void Accept(Job job);
  [[nodiscard]] Status CountNeeds(Active* active) const;
  [[nodiscard]] State Look();
  void CarryOut(const Plan& plan);
  void End(const Plan::End& end);
  void Park(Active* active);
  void Resume(Active* active);
  void Start(Active* active);
  [[nodiscard]] Result<std::unique_ptr<Session>> Open(Active* active);
  void NotBegun(Active* active, const Status& status);
  // Before the first step that reads. False: the job is over.
  bool BeginPrompt(Active* active);
  [[nodiscard]] PrefixSource FindPrefix(const Active& active, std::span<const Token> prompt);
  // Asks the session store for the prompt of a waiting job, unless memory has most of it, and holds
  // the job until the answer arrives or PatienceFor() is over.
  void LookUp(Active* active);
  [[nodiscard]] double PatienceFor(const Active& active, size_t num_there) const;
  // Takes the store's answer to the lookup of a job, which may have ended meanwhile.
  void LookedUp(JobId id, const std::string& key, const SessionOptions& session,
                const std::optional<FetchedPrefix>& fetched);
  // Resumes a fetched prompt and keeps it in `prefixes`. Returns false if the file is damaged or
  // does not match its record.
  [[nodiscard]] bool Adopt(const std::string& key, SessionOptions session,
                           const FetchedPrefix& fetched);
  // Offers a kept prompt to the store if its time has come, else sets when the plan wakes for it.
  void StorePrefixes(Plan* plan);
  void StoreAllPrefixes();
  void Store(const PrefixCache::Unstored& prefix);
  // False: the session is good only for being destroyed.
  [[nodiscard]] bool TakePrefix(Active* active, const PrefixSource& source,
                                const std::vector<Token>& prompt);
  // False: the job is over.
  [[nodiscard]] bool BringToT0(Active* active);
  // Forks a session whose prompt was just read to queued jobs with the same prompt, if its policy
  // leaves no prefix.
  void ForkToIdenticalPrompts(Active* active);
  // Returns false if the duplicate has to read its prompt itself.
  [[nodiscard]] bool ForkTo(Active* duplicate, Session* from);
  // Keeps what can be kept of a job that is over.
  void KeepPrefix(Active* active, const JobEnd& end);
  // Evicts or demotes one cached prefix. Returns false if there is none.
  bool EvictPrefix();
  void SetShare(Active* active, double share);
  void Step(const Plan& plan);
  // Steps all in one batch, or each by itself if an error cannot be attributed to one of them.
  void StepTogether(std::span<Active* const> who, bool reads_alone);
  void StepAlone(Active* active);
  void Appended(Active* active, const Status& status, double seconds);
  void Read(Active* active, const Status& status);
  // Handles an error that stopped a step before it changed anything.
  void Refused(Active* active, const Status& status);
  void NoteRefusal();
  // The next token of a job, or its end.
  void Choose(Active* active);
  void Begin(Active* active);
  void NoteLogprobs(Active* active, Token token, size_t text_begin);
  void NoteProgress(Active* active);
  // The session of a job that has SessionWork, at a checkpoint and at the end.
  void Note(Active* active, Token token);
  void Checkpoint(Active* active);
  void Rest(Active* active, const GenerateResult& result, JobEnd* end);
  // Adds a job that is over to the figures.
  void Count(const JobEnd& end);
  void Finish(Active* active, FinishReason reason, const Status& error);
  void Tell();
  void CountRows();
  void Ask(std::function<void()> question);
  [[nodiscard]] Snapshot LookAround() const;
  void EndThought(Active* active);
  void SetWaitingOwners();

  [[nodiscard]] double Now() const {
    return std::chrono::duration<double>(Clock::now() - origin).count();
  }
  [[nodiscard]] bool IsCapped() const { return t0_cap != kNoCap; }
  [[nodiscard]] Active* Find(JobId id) {
    const auto found = std::ranges::find_if(
        actives, [&](const std::unique_ptr<Active>& active) { return active->job.id == id; });
    return found == actives.end() ? nullptr : found->get();
  }
  [[nodiscard]] size_t NumWaiting() const {
    return static_cast<size_t>(std::ranges::count_if(
        actives, [](const auto& active) { return active->state.phase == Phase::kWaiting; }));
  }

  const std::unique_ptr<Engine> engine;
  const DriverOptions options;
  const Driver::Tell tell;
  const Clock::time_point origin = Clock::now();

  // The engine's thread owns the members below.
  std::vector<std::unique_ptr<Active>> actives;  // in order of arrival
  std::vector<JobUpdate> news;                   // of jobs that are over
  PrefixCache prefixes;
  MachineState machine;
  FairShares shares;
  uint64_t t0_cap = kNoCap;
  uint64_t page_bytes = 0;
  double mean_generated = 0;  // tokens of an answer
  double rows_counted = 0;    // when
  Figures counted;
  SessionShelf shelf;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::vector<Job> inbox;
  std::vector<JobId> cancelled;
  std::vector<std::function<void()>> questions;  // run between steps
  std::vector<JobId> without_thought;            // whose thoughts are to end
  std::vector<uint64_t> discarded;               // sessions
  size_t num_waiting = 0;                        // those of the inbox left out
  Figures shown;
  bool stopped = false;

  std::thread thread;  // last: it begins when all else is there
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_DRIVER_IMPL_H_
