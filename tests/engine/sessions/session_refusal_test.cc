// What is no session of this model and setting, or not whole, is refused with its name.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>

#include "ebb/state.h"
#include "src/session/session_impl.h"
#include "tests/engine/sessions/session_fixture.h"

namespace ebb {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

SessionOptions Options() {
  SessionOptions options;
  options.policy = {.name = "attention"};
  options.policy.tiers = TierShares{.t0_share = 0.5, .t2_share = 0.4, .evict_share = 0.1};
  options.policy.window = 4;
  options.policy.interval = 4;
  return options;
}

const EngineTiers kTiers = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8};

class SessionRefusal : public testing::Test {
 protected:
  SessionRefusal() : path_(folder_.File("session")) {}
  void SetUp() override {
    OwnSession own = OpenOwn(Options(), kTiers);
    ExpectOk(own.session->Prefill(SomeTokens(6)));
    for (const Token token : SomeTokens(24, 3)) ExpectOk(own.session->Decode(token));
    const CacheAccounting cache = own.session->accounting();
    for (int tier = 0; tier < 3; ++tier) EXPECT_GT(cache.tiers[tier].rows, 0) << tier;
    ExpectOk(SaveSession(*own.session, path_, "the talk"));
    good_ = ReadFileBytes(path_);
  }
  [[nodiscard]] Status ResumeBytes(const std::string& bytes) const {
    WriteFileBytes(path_, bytes);
    return ResumeOwn(path_, Options(), kTiers).status();
  }
  [[nodiscard]] Status ResumeWith(const std::function<void(SessionOptions*)>& change,
                                  const EngineTiers& tiers = kTiers) const {
    SessionOptions options = Options();
    change(&options);
    return ResumeOwn(path_, options, tiers).status();
  }

  TempFolder folder_;
  const std::string path_;
  std::string good_;
};

TEST_F(SessionRefusal, AnotherSettingIsNamedWithWhatWasExpectedAndFound) {
  const auto expect = [&](const char* name, const std::function<void(SessionOptions*)>& change,
                          const EngineTiers& tiers = kTiers) {
    const Status status = ResumeWith(change, tiers);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name << status.ToString();
    EXPECT_THAT(status.message(), StartsWith(path_ + ": a session of another " + name));
    EXPECT_THAT(status.message(), HasSubstr("expected \""));
    EXPECT_THAT(status.message(), HasSubstr("found \""));
  };
  expect("policy", [](SessionOptions* o) { o->policy.name = "h2o"; });
  expect("policy", [](SessionOptions* o) { o->policy.scorer = "random"; });
  expect("placement of rows in tiers", [](SessionOptions* o) { o->policy.tiers->t0_share = 0.25; });
  expect("placement of rows in tiers", [](SessionOptions* o) { o->policy.tiers->t2_share = 0.25; });
  expect("placement of rows in tiers", [](SessionOptions* o) { o->policy.tiers->evict_share = 0; });
  expect("placement of rows in tiers",
         [](SessionOptions* o) { o->policy.tiers->evict_of = EvictOf::kAlive; });
  const auto as_it_was = [](SessionOptions*) {};
  EngineTiers other = kTiers;
  other.t2_type = CompressedType::kInt4;
  expect("placement of rows in tiers", as_it_was, other);
  other = kTiers;
  other.t1_cap_bytes = 64 << 20;
  expect("placement of rows in tiers", as_it_was, other);
  other = kTiers;
  other.t1 = T1Place::kNone;
  expect("placement of rows in tiers", as_it_was, other);
  expect("placement of rows in tiers", [](SessionOptions* o) {
    o->policy.tiers.reset();
    o->policy.budget = *ParseBudget("64");
  });
  expect("placement of rows in tiers", [](SessionOptions* o) {
    o->policy.tiers.reset(), o->policy.budget = *ParseBudget("64"), o->policy.sinks = 1;
  });
  other.t1 = T1Place::kFile;
  expect("T1", as_it_was, other);
  expect("granularity", [](SessionOptions* o) { o->policy.granularity = Granularity::kLayer; });
}

TEST_F(SessionRefusal, AnotherSeedOfAPolicyThatDrawsLotsIsAnotherScorer) {
  SessionOptions options;
  options.policy = SmallPolicy("random", "64");
  OwnSession own = OpenOwn(options);
  ExpectOk(SaveSession(*own.session, path_));
  options.policy.seed = 9;
  EXPECT_THAT(ResumeOwn(path_, options).status().message(),
              HasSubstr("another scorer: expected \"random:seed=9\", found \"random:seed=0\""));
}

TEST_F(SessionRefusal, PlacesThatDoNotFitTheRowsAreCorrupt) {
  SessionOptions options;
  options.policy = SmallPolicy("streaming_rerotated", "64");
  OwnSession own = OpenOwn(options);
  ExpectOk(own.session->Prefill(SomeTokens(60)));
  Internals::SequenceOf(*own.session).rope().Continue(/*end=*/10, own.session->next_position());
  ExpectOk(SaveSession(*own.session, path_));
  const Status status = ResumeOwn(path_, options).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("a turn of no rows"));
}

TEST_F(SessionRefusal, AnotherNumberFormatIsNamed) {
  auto engine = MakeEngine({.threads = 1, .kv_type = RowType::kBf16, .tiers = kTiers});
  const Status status = ResumeSession(*engine, path_, Options()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              HasSubstr("another number format of rows: expected \"bf16\", found \"f16\""));
}

TEST_F(SessionRefusal, AnotherModelOrRopeScalingIsNamed) {
  const TempFolder folder;
  RandomGgufOptions other = SmallModelOptions();
  other.feed_forward_dim = 256;  // of the same shape where the cache is concerned
  ExpectOk(WriteRandomGguf(other, folder.File("other.gguf")));
  ExpectOk(WriteRandomGguf(SmallModelOptions(), folder.File("same.gguf")));
  const auto refusal = [&](const ModelOptions& options) {
    const auto model = Model::Load(options);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    auto engine = Engine::Create(*model, EngineOptionsFor(kTiers));
    return ResumeSession(**engine, path_, Options()).status();
  };
  ExpectOk(refusal({.path = folder.File("same.gguf")}));
  const Status of_other = refusal({.path = folder.File("other.gguf")});
  EXPECT_EQ(of_other.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(of_other.message(), HasSubstr("a session of another model: expected \""));
  EXPECT_THAT(refusal({.path = folder.File("same.gguf"),
                       .rope_scaling = RopeScaling::kLinear,
                       .rope_factor = 2})
                  .message(),
              HasSubstr("a session of another rope scaling: expected \""));
}

TEST_F(SessionRefusal, AFileThatIsNotThereOrNoSessionIsToldApart) {
  EXPECT_EQ(ResumeOwn(folder_.File("none"), Options(), kTiers).status().code(),
            StatusCode::kNotFound);
  for (const std::string& bytes : {std::string(), std::string("short"), std::string(200, 'x')}) {
    const Status status = ResumeBytes(bytes);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("not a session"));
  }
  EXPECT_EQ(ResumeOwn(folder_.File("."), Options(), kTiers).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(SessionRefusal, AnotherVersionIsNamedWhateverFollows) {
  std::string bytes = good_;
  bytes[8] = 1;
  EXPECT_EQ(ResumeBytes(bytes).code(), StatusCode::kUnsupported);
  EXPECT_THAT(ResumeBytes(bytes).message(), HasSubstr("another version: expected 16, found 1"));
  EXPECT_THAT(ResumeBytes(bytes.substr(0, 12)).message(), HasSubstr("another version"));
}

TEST_F(SessionRefusal, EveryTruncationIsTold) {
  for (size_t size = 16; size < good_.size(); size += 1 + good_.size() / 997) {
    const Status status = ResumeBytes(good_.substr(0, size));
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << size << status.ToString();
    ASSERT_THAT(status.message(), HasSubstr("the file is cut off: expected ")) << size;
  }
  EXPECT_THAT(ResumeBytes(good_ + "x").message(), HasSubstr("the file is too long"));
  ExpectOk(ResumeBytes(good_));
}

// Never a crash, never silence: every byte is under a checksum.
TEST_F(SessionRefusal, AFlippedByteAnywhereIsTold) {
  std::mt19937_64 random(1);
  std::vector<size_t> places;
  for (size_t i = 0; i < 2500 && i < good_.size(); ++i) places.push_back(i);
  for (int i = 0; i < 600; ++i) places.push_back(random() % good_.size());
  places.push_back(good_.size() - 1);
  for (const size_t place : places) {
    std::string bytes = good_;
    bytes[place] = static_cast<char>(bytes[place] ^ (1 << random() % 8));
    const Status status = ResumeBytes(bytes);
    ASSERT_FALSE(status.ok()) << place;
    ASSERT_TRUE(status.code() == StatusCode::kCorrupt || place < 12) << place << status.ToString();
  }
}

TEST_F(SessionRefusal, ADamagedPageIsNamedWithItsPlace) {
  std::string bytes = good_;
  bytes.back() ^= 1;
  EXPECT_THAT(ResumeBytes(bytes).message(),
              HasSubstr("page 0 of T2 of layer 1, kv head 1 is damaged, at offset "));
}

// Offsets of docs/dev/formats.md.
constexpr size_t kSectionBytesAt = 16;
constexpr size_t kChecksumAt = 88;

void Reseal(std::string* bytes) {
  const uint64_t checksum = XXH3_64bits_withSeed(bytes->data(), kChecksumAt, 0);
  std::memcpy(bytes->data() + kChecksumAt, &checksum, sizeof(checksum));
}

TEST_F(SessionRefusal, SizesThatDoNotAddUpTakeNoMemory) {
  for (size_t at = kSectionBytesAt; at < kChecksumAt; at += sizeof(uint64_t)) {
    for (const uint64_t lie : {~uint64_t{0}, uint64_t{1} << 62, uint64_t{1} << 40, uint64_t{0}}) {
      std::string bytes = good_;
      if (std::memcmp(bytes.data() + at, &lie, sizeof(lie)) == 0) continue;  // the truth
      std::memcpy(bytes.data() + at, &lie, sizeof(lie));
      Reseal(&bytes);
      const Status status = ResumeBytes(bytes);
      EXPECT_EQ(status.code(), StatusCode::kCorrupt) << at << ": " << status.ToString();
    }
  }
}

// Checksums keep out damage, not malice: a section with a good checksum may hold anything.
TEST_F(SessionRefusal, LiesUnderGoodChecksumsAreNoCrash) {
  std::mt19937_64 random(5);
  uint64_t sizes[6];
  std::memcpy(sizes, good_.data() + kSectionBytesAt, sizeof(sizes));
  size_t begin = kChecksumAt + sizeof(uint64_t);
  int refused = 0;
  for (const uint64_t size : sizes) {
    ASSERT_LT(size, size_t{64} << 10);  // one block
    for (int i = 0; i < 400; ++i) {
      std::string bytes = good_;
      for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
        const size_t at = begin + random() % std::max<uint64_t>(size, 1);
        bytes[at] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
      }
      const uint64_t checksum = XXH3_64bits_withSeed(bytes.data() + begin, size, begin);
      std::memcpy(bytes.data() + begin + size, &checksum, sizeof(checksum));
      WriteFileBytes(path_, bytes);
      auto resumed = ResumeOwn(path_, Options(), kTiers);
      refused += resumed.ok() ? 0 : 1;
      // What is accepted can be stepped.
      if (resumed.ok()) (void)resumed->session->Decode(5);
    }
    begin += size + sizeof(uint64_t);
  }
  EXPECT_GT(refused, 600);  // centres of keys, most of the token tables, may be any numbers
}

// A build may store rows of the same model otherwise.
TEST_F(SessionRefusal, AnotherFormatOfRowsIsNamedBeforeAnyRowIsRead) {
  const auto refusal = [&](const std::string& from, const std::string& to) {
    uint64_t size = 0;
    std::memcpy(&size, good_.data() + kSectionBytesAt, sizeof(size));
    const size_t begin = kChecksumAt + sizeof(uint64_t);
    std::string bytes = good_;
    const size_t at = bytes.find(from);
    EXPECT_LT(at, begin + size) << from;
    EXPECT_EQ(from.size(), to.size());
    bytes.replace(at, to.size(), to);
    const uint64_t checksum = XXH3_64bits_withSeed(bytes.data() + begin, size, begin);
    std::memcpy(bytes.data() + begin + size, &checksum, sizeof(checksum));
    return ResumeBytes(bytes).ToString();
  };
  // Keys and values of 64 channels in f16.
  EXPECT_EQ(refusal("256 bytes, a key and", "128 bytes, a key for"),
            "invalid argument: " + path_ +
                ": a session of another row format: expected \"256 bytes, a key and a value of 64 "
                "channels, 4 kv heads in 2 layers\", found \"128 bytes, a key for a value of 64 "
                "channels, 4 kv heads in 2 layers\"");
  EXPECT_THAT(refusal("placement's, 1", "placement's, 2"),
              HasSubstr("a session of another number format of T2: expected \"the placement's, "));
  EXPECT_THAT(refusal("0 bytes", "9 bytes"),
              HasSubstr("another recurrent state: expected \"0 bytes\", found \"9 bytes\""));
  EXPECT_EQ(refusal("row format", "raw format"),
            "unsupported: " + path_ +
                ": a session of another build of ebb, which did not save its row format");
}

TEST_F(SessionRefusal, SharesThatAreNoneAreToldBeforeAnybodyCountsWithThem) {
  uint64_t size = 0;
  std::memcpy(&size, good_.data() + kSectionBytesAt, sizeof(size));
  const size_t begin = kChecksumAt + sizeof(uint64_t);
  for (const size_t from_end : {74, 48, 36, 19, 10}) {
    for (const double share : {-0.5, 1.5, 1e300, std::nan("")}) {
      std::string bytes = good_;
      std::memcpy(bytes.data() + begin + size - from_end, &share, sizeof(share));
      const uint64_t checksum = XXH3_64bits_withSeed(bytes.data() + begin, size, begin);
      std::memcpy(bytes.data() + begin + size, &checksum, sizeof(checksum));
      WriteFileBytes(path_, bytes);
      const Status status = ReadSessionInfo(path_).status();
      EXPECT_EQ(status.code(), StatusCode::kCorrupt) << from_end << " " << share;
      EXPECT_THAT(status.message(), HasSubstr("that no tiers have"));
    }
  }
}

TEST_F(SessionRefusal, AFolderThatCannotBeWrittenLeavesTheOldFile) {
  OwnSession own = OpenOwn(Options(), kTiers);
  ExpectOk(own.session->Prefill(SomeTokens(6)));
  EXPECT_EQ(SaveSession(*own.session, folder_.File("no/session")).code(), StatusCode::kNotFound);
  EXPECT_EQ(SaveSession(*own.session, "/proc/session").ok(), false);
  EXPECT_EQ(ReadFileBytes(path_), good_);
}

// A file-size limit ends the writes as a full disk does.
TEST_F(SessionRefusal, NoSpaceLeavesTheOldFile) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {20000, 20000};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto own = ResumeOwn(path_, Options(), kTiers);
    const bool refused =
        own.ok() && SaveSession(*own->session, path_).code() == StatusCode::kStorageFull;
    _exit(refused ? 0 : 1);
  }
  int state = 0;
  waitpid(child, &state, 0);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << state;
  EXPECT_EQ(ReadFileBytes(path_), good_);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
  ExpectOk(ResumeOwn(path_, Options(), kTiers).status());
}

// Counts its rows, and comes back with `off` too many.
class Counting final : public Selector {
 public:
  explicit Counting(size_t off) : off_(off) {}
  [[nodiscard]] std::string Name() const override { return "counting"; }
  [[nodiscard]] SignalNeeds Needs() const override { return {}; }
  void Append(int, std::span<const Position> positions) override { rows_ += positions.size(); }
  void Retain(int, std::span<const uint32_t> kept) override { rows_ = kept.size(); }
  void Select(int, int, std::span<const float>, std::vector<RowRange>*) override {}
  [[nodiscard]] size_t NumRows(int) const override { return rows_; }
  [[nodiscard]] Status SaveState(StateWriter* to) const override {
    to->Number<uint64_t>(rows_);
    return OkStatus();
  }
  [[nodiscard]] Status LoadState(StateReader* from) override {
    rows_ = from->Number<uint64_t>() + off_;
    return from->status();
  }

 private:
  const size_t off_;
  size_t rows_ = 0;
};

TEST(SessionRefusalOfSelectors, OneThatKnowsOtherRowsThanTheCache) {
  TempFolder folder;
  const std::string path = folder.File("session");
  const auto options_with = [](size_t off) {
    SessionOptions options;
    options.make_policy = [off](const PolicyContext& context) -> Result<Policy> {
      EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy({.name = "full"}, context));
      policy.selector = std::make_unique<Counting>(off);
      return policy;
    };
    return options;
  };
  OwnSession own = OpenOwn(options_with(0));
  ExpectOk(own.session->Prefill(SomeTokens(6)));
  ExpectOk(own.session->Decode(5));
  ExpectOk(SaveSession(*own.session, path, ""));
  ExpectOk(ResumeOwn(path, options_with(0)).status());
  const Status refused = ResumeOwn(path, options_with(1)).status();
  EXPECT_EQ(refused.code(), StatusCode::kCorrupt);
  EXPECT_THAT(refused.message(), HasSubstr("another number of rows"));
}

}  // namespace
}  // namespace ebb
