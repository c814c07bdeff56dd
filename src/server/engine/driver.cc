#include "src/server/engine/driver.h"

#include <thread>
#include <utility>

#include "src/base/threads/mutex.h"
#include "src/server/engine/mailbox.h"
#include "src/server/engine/step_loop.h"

namespace ebb::server {

class Driver::Impl {
 public:
  Impl(std::unique_ptr<Engine> engine, const DriverOptions& options, Tell tell)
      : mailbox(options.most_waiting),
        prefix_store_(options.prefix_store),
        loop_(std::move(engine), options, &mailbox,
              {.tell = std::move(tell), .publish = [this](const Figures& figures) {
                 const MutexLock lock(mutex_);
                 figures_ = figures;
               }}) {
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~Impl() { Stop(); }

  void Stop() {
    mailbox.Stop();
    if (thread_.joinable()) thread_.join();
    constexpr double kMostSeconds = 20;
    if (prefix_store_ != nullptr) prefix_store_->Stop(kMostSeconds);
  }
  [[nodiscard]] Figures figures() const {
    const MutexLock lock(mutex_);
    return figures_;
  }

  Mailbox mailbox;

 private:
  const std::shared_ptr<PrefixStore> prefix_store_;
  mutable Mutex mutex_;
  Figures figures_ EBB_GUARDED_BY(mutex_);  // figures after the last round
  StepLoop loop_;
  std::thread thread_;  // last member: the thread uses all others
};

Driver::Driver(std::unique_ptr<Engine> engine, const DriverOptions& options, Tell tell)
    : impl_(std::make_unique<Impl>(std::move(engine), options, std::move(tell))) {}
Driver::~Driver() = default;

Status Driver::Submit(std::vector<Job> jobs) { return impl_->mailbox.Submit(std::move(jobs)); }
void Driver::Cancel(JobId id) { impl_->mailbox.Post(CancelJob{id}); }
void Driver::EndThought(JobId id) { impl_->mailbox.Post(EndJobThought{id}); }
void Driver::Discard(uint64_t resting) { impl_->mailbox.Post(DiscardSession{resting}); }
void Driver::Look(std::function<void(Snapshot)> tell) {
  impl_->mailbox.Post(TakeSnapshot{std::move(tell)});
}
void Driver::Trace(JobId id, std::function<void(std::optional<TokenFates>)> tell) {
  impl_->mailbox.Post(TraceJob{id, std::move(tell)});
}
void Driver::Explain(JobId id, Position position,
                     std::function<void(std::optional<TokenReasons>)> tell) {
  impl_->mailbox.Post(ExplainToken{id, position, std::move(tell)});
}
Figures Driver::figures() const { return impl_->figures(); }
void Driver::Stop() { impl_->Stop(); }

Status ShareTiers(const SessionOptions& session, EngineOptions* engine) {
  if (!engine->tiers.has_value()) return OkStatus();
  const std::optional<TierShares>& shares = session.policy.tiers;
  if (shares.has_value() && shares->evict_beyond_caps) {
    return InvalidArgument("tiers.evict_beyond_caps",
                           "which rows are evicted would depend on other requests; give a "
                           "share instead");
  }
  const bool reads_quest = !session.policy.read.empty() || session.policy.name == "quest";
  if ((ReadsSelectively(shares) || (shares.has_value() && reads_quest)) &&
      engine->tiers->t0_cap_bytes > 0) {
    return InvalidArgument("tiers.t1_read",
                           "reading a part of the rows in a server takes T0 as a share, such as "
                           "30%, and not as a size: "
                           "each session has a cache of its own for pages of T1");
  }
  engine->tiers->sessions_share_caps = true;
  return OkStatus();
}

}  // namespace ebb::server
