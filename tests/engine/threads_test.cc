// Engines of one model, each on a thread of its own: what they share they only read. The thread
// sanitizer sees what a run without it does not.
#include <barrier>
#include <thread>

#include "tests/engine/dms/dms_fixture.h"
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

constexpr int kThreads = 3;

// `together` is called before what threads are to do at the same time.
template <typename Together>
uint64_t HashOf(const std::shared_ptr<const Model>& model, const EngineOptions& options,
                const Together& together) {
  together();
  const auto engine = MakeEngineOf(model, options);
  const auto session = Open(*engine);
  together();
  ExpectOk(session->Prefill(SomeTokens(30)));
  for (const Token token : SomeTokens(20, 9)) ExpectOk(session->Decode(token));
  return session->logits_hash();
}

void ExpectSameOnThreads(const std::shared_ptr<const Model>& model, const EngineOptions& options) {
  std::vector<uint64_t> hashes(kThreads);
  std::barrier barrier(kThreads);
  std::vector<std::jthread> threads;
  for (uint64_t& hash : hashes) {
    threads.emplace_back(
        [&] { hash = HashOf(model, options, [&] { barrier.arrive_and_wait(); }); });
  }
  threads.clear();
  const uint64_t alone = HashOf(model, options, [] {});
  for (const uint64_t hash : hashes) EXPECT_EQ(hash, alone);
}

// Models of their own, whose first graphs are built on the threads.
TEST(EnginesOnThreads, ReadOneModel) {
  ExpectSameOnThreads(RandomModel(SmallModelOptions()), {.threads = 1});
}

TEST(EnginesOnThreads, ReadOneModelThatMarksItsRows) {
  ExpectSameOnThreads(RandomModel(MarkingModelOptions(0, RandomGgufOptions::Marks::kAdapter)),
                      {.threads = 1});
}

TEST(EnginesOnThreads, EachHaveADevice) {
  EngineOptions options = {.threads = 1};
  options.device = *ParseDevice("ggml-sim");
  ExpectSameOnThreads(RandomModel(SmallModelOptions(), /*for_device=*/true), options);
}

}  // namespace
}  // namespace ebb
