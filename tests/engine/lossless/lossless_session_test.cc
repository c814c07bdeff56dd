// Lossless sessions in files, in the middle of what was drafted ahead, and with a T1 that fails.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/engine/lossless/lossless_internals.h"
#include "tests/engine/sessions/session_fixture.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE(
    "tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");

using testing::HasSubstr;

constexpr int kSessionPromptTokens = 40;

const std::vector<Token>& Text() {
  static const std::vector<Token> kText = SomeTokens(300, 6);
  return kText;
}

// What is going to come, with a wrong guess every tenth time.
Guess From(size_t next) {
  return [next](std::span<const float>) mutable -> std::optional<Token> {
    if (next >= Text().size()) return std::nullopt;
    const Token token = Text()[next++];
    return next % 10 == 0 ? (token + 1) % SmallModel()->shape().vocab_size : token;
  };
}

void Decode(Session& session, int from, int to) {
  for (int i = from; i < to; ++i) ExpectOk(session.Decode(Text()[i], From(i + 1)));
}

struct LosslessSessionCase {
  std::string name;
  PolicySpec policy;
  EngineTiers tiers;
};

std::vector<LosslessSessionCase> LosslessSessionCases() {
  std::vector<LosslessSessionCase> cases = {
      {"memory", {.name = "streaming", .sinks = 4, .window = 12}, {.t1 = T1Place::kNone}},
      {"host", SmallPolicy("h2o", "24"), {.t1 = T1Place::kHost}},
      {"file", SmallPolicy("attention", "20%"), {.t1 = T1Place::kFile}},
      {"int4", SmallPolicy("full", ""), {.t1 = T1Place::kFile, .t2_type = CompressedType::kInt4}},
  };
  cases.back().policy = {.name = "attention",
                         .window = 8,
                         .interval = 8,
                         .tiers = TierShares{.t0_share = 0.5, .t2_share = 0.8}};
  return cases;
}

class LosslessSession : public testing::TestWithParam<LosslessSessionCase> {
 protected:
  void SetUp() override {
    const auto engine = Engine::Create(SmallModel(), {.threads = 1, .tiers = GetParam().tiers});
    if (engine.status().code() == StatusCode::kUnsupported) {
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();  // a disk without direct reads
    }
  }
  [[nodiscard]] static SessionOptions Options() {
    return {.policy = GetParam().policy, .lossless = LosslessOptions{.draft_min = 7}};
  }
  [[nodiscard]] static OwnSession OpenNew() {
    OwnSession own = {.engine = MakeEngine({.threads = 1, .tiers = GetParam().tiers})};
    own.session = Open(*own.engine, Options());
    return own;
  }
  [[nodiscard]] Result<OwnSession> Resume(const SessionOptions& options) const {
    OwnSession own = {.engine = MakeEngine({.threads = 1, .tiers = GetParam().tiers})};
    EBB_ASSIGN_OR_RETURN(ResumedSession resumed, ResumeSession(*own.engine, path_, options));
    own.session = std::move(resumed.session);
    return own;
  }
  [[nodiscard]] Result<OwnSession> Resume() const { return Resume(Options()); }

  TempFolder folder_;
  const std::string path_ = folder_.File("session");
};

TEST_P(LosslessSession, GoesOnWithTheBitsOfTheFullCache) {
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  OwnSession own = OpenNew();
  for (Session* session : {full.get(), own.session.get()}) {
    ExpectOk(session->Prefill(SomeTokens(kSessionPromptTokens)));
  }
  int at = 0;
  bool saved_ahead = false;
  for (const int next : {2, 61, 64, 65, 65, 137}) {
    Decode(*full, at, next);
    Decode(*own.session, at, next);
    at = next;
    saved_ahead = saved_ahead || LosslessOf(*own.session).num_verified_ahead() > 0;
    ExpectOk(SaveSession(*own.session, path_, ""));
    EXPECT_EQ(own.session->logits_hash(), full->logits_hash());
    auto resumed = Resume();
    ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
    EXPECT_EQ(resumed->session->logits_hash(), full->logits_hash());
    EXPECT_EQ(Logits(*resumed->session), Logits(*full));
    EXPECT_TRUE(std::ranges::equal(resumed->session->tokens(), full->tokens()));
    // The one that was saved goes on as well.
    if (next == 64) {
      Decode(*own.session, at, at + 9);
      ExpectOk(own.session->TruncateTo(own.session->next_position() - 9));
    }
    own.session.reset();
    own = *std::move(resumed);
  }
  EXPECT_TRUE(saved_ahead);
  Decode(*full, at, 200);
  Decode(*own.session, at, 200);
  EXPECT_EQ(own.session->logits_hash(), full->logits_hash());
  EXPECT_GT(own.session->lossless_report()->accepted, 20);
}

TEST_P(LosslessSession, IsToldFromOneThatForgets) {
  OwnSession own = OpenNew();
  ExpectOk(own.session->Prefill(SomeTokens(kSessionPromptTokens)));
  Decode(*own.session, 0, 80);
  ExpectOk(SaveSession(*own.session, path_, ""));
  SessionOptions forgetting = Options();
  forgetting.lossless.reset();
  const Status status = Resume(forgetting).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  // Nor are rows of steps that round otherwise those of an exact text.
  SessionOptions fast = Options();
  fast.lossless->verify = LosslessOptions::Verify::kFast;
  const Status of_fast = Resume(fast).status();
  EXPECT_EQ(of_fast.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(of_fast.message(), HasSubstr("expected \"all, verify: fast"));
  EXPECT_THAT(of_fast.message(), HasSubstr("found \"all, verify: exact"));
}

// Everything is under a checksum: a lie in the store's tables must be made anew.
TEST_P(LosslessSession, AStoreThatLacksARowIsCorrupt) {
  OwnSession own = OpenNew();
  ExpectOk(own.session->Prefill(SomeTokens(kSessionPromptTokens)));
  Decode(*own.session, 0, 80);
  ExpectOk(SaveSession(*own.session, path_, ""));
  LosslessOf(*own.session).DiscardLookahead();
  const uint32_t lost[] = {17};
  LosslessOf(*own.session).store().cache().Remove(0, lost);
  ExpectOk(SaveSession(*own.session, path_, ""));
  const Status status = Resume().status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("the store lacks the row of token 17"), std::string::npos)
      << status.message();
}

INSTANTIATE_TEST_SUITE_P(Places, LosslessSession, testing::ValuesIn(LosslessSessionCases()),
                         [](const auto& info) { return info.param.name; });

// What a caller's guess throws passes through, and leaves both sequences where they were.
TEST(LosslessFaults, AGuessThatThrowsLeavesTheSessionAsItWas) {
  auto engine = MakeEngine({.threads = 1, .tiers = EngineTiers{.t1 = T1Place::kHost}});
  auto full_engine = MakeEngine();
  auto full = Open(*full_engine);
  auto session = Open(*engine, {.policy = {.name = "streaming", .sinks = 4, .window = 12},
                                .lossless = LosslessOptions{.draft_min = 7}});
  for (Session* one : {full.get(), session.get()}) {
    ExpectOk(one->Prefill(SomeTokens(200)));
    for (int i = 0; i < 10; ++i) ExpectOk(one->Decode(Text()[i]));
  }
  for (int right = 0; right < 3; ++right) {
    const Guess throws = [&, guess = From(11),
                          left = right](std::span<const float> logits) mutable {
      if (left-- == 0) throw std::runtime_error("no guess");
      return guess(logits);
    };
    EXPECT_THROW((void)session->Decode(Text()[10], throws), std::runtime_error);
    EXPECT_EQ(session->next_position(), full->next_position());
    EXPECT_EQ(LosslessOf(*session).store().next(), full->next_position());
    EXPECT_EQ(session->logits_hash(), full->logits_hash());
  }
  Decode(*full, 10, 60);
  Decode(*session, 10, 60);
  EXPECT_EQ(session->logits_hash(), full->logits_hash());
}

// The files without a name that this process has open, each by its device and number there.
using FileNumber = std::pair<dev_t, ino_t>;
std::map<FileNumber, std::filesystem::path> FilesWithoutName() {
  std::map<FileNumber, std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat info = {};
    if (stat(entry.path().c_str(), &info) != 0) continue;
    if (S_ISREG(info.st_mode) && info.st_nlink == 0) {
      files[{info.st_dev, info.st_ino}] = entry.path();
    }
  }
  return files;
}

// The file of an engine's T1, which has no name any more: the one that was not there before.
class T1File {
 public:
  explicit T1File(const std::map<FileNumber, std::filesystem::path>& before) {
    for (const auto& [number, path] : FilesWithoutName()) {
      if (before.contains(number)) continue;
      EXPECT_EQ(fd_, -1) << "two files without a name";
      fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
    }
    EXPECT_GE(fd_, 0);
    struct stat info = {};
    EXPECT_EQ(fstat(fd_, &info), 0);
    bytes_.resize(info.st_size);
    EXPECT_EQ(pread(fd_, bytes_.data(), bytes_.size(), 0), static_cast<ssize_t>(bytes_.size()));
  }
  ~T1File() { close(fd_); }
  void Lose() const { EXPECT_EQ(ftruncate(fd_, 0), 0); }
  void Restore() const {
    EXPECT_EQ(pwrite(fd_, bytes_.data(), bytes_.size(), 0), static_cast<ssize_t>(bytes_.size()));
  }

 private:
  int fd_ = -1;
  std::string bytes_;
};

// The model has more layers than the two that are read ahead for the next step, which may have been
// read before the file was lost.
TEST(LosslessFaults, AT1FileThatCannotBeReadLeavesTheSessionAsItWas) {
  const auto model = DeepModel();  // keeps its file open, which has no name any more
  const auto before = FilesWithoutName();
  const auto engine =
      Engine::Create(model, {.threads = 2, .tiers = EngineTiers{.t1 = T1Place::kFile}});
  if (engine.status().code() == StatusCode::kUnsupported)
    EBB_SKIP_WITHOUT("direct_io") << engine.status().message();
  auto full_engine = MakeEngineOf(DeepModel(), {.threads = 2});
  auto full = Open(*full_engine);
  auto session = Open(**engine, {.policy = {.name = "streaming", .sinks = 4, .window = 12},
                                 .lossless = LosslessOptions{.draft_min = 7}});
  for (Session* one : {full.get(), session.get()}) {
    ExpectOk(one->Prefill(SomeTokens(200)));
    for (int i = 0; i < 10; ++i) ExpectOk(one->Decode(Text()[i]));
  }
  ASSERT_GT(session->accounting().tiers[static_cast<int>(Tier::kT1)].rows, 0);
  const T1File file(before);
  file.Lose();
  for (const Guess& guess : {Guess(), From(11), From(11)}) {
    const Status status = session->Decode(Text()[10], guess).status;
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.ToString();
    EXPECT_EQ(session->next_position(), full->next_position());
    EXPECT_EQ(session->logits_hash(), full->logits_hash());
  }
  file.Restore();
  for (int i = 10; i < 80; ++i) {
    ExpectOk(full->Decode(Text()[i]));
    ExpectOk(session->Decode(Text()[i], From(i + 1)));
  }
  EXPECT_EQ(session->logits_hash(), full->logits_hash());
  EXPECT_GT(session->lossless_report()->accepted, 20);
}

}  // namespace
}  // namespace ebb
