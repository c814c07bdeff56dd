#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "ebb/state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/attention_layout.h"
#include "src/base/rank_vectors.h"
#include "src/policy/selectors.h"
#include "src/policy/selectors/half.h"
#include "src/policy/selectors/row_list_for_test.h"

namespace ebb {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint32_t kPage = 64;

class MassSelectorTest : public ::testing::TestWithParam<Granularity> {
 protected:
  [[nodiscard]] static ModelShape Shape() {
    return {.num_layers = 2, .num_q_heads = 6, .num_kv_heads = 2, .head_dim = 16, .embed_dim = 6};
  }
  [[nodiscard]] int num_groups() const { return Shape().NumGroups(GetParam()); }
  void Make(double mass) { selector_ = New(mass); }
  [[nodiscard]] static std::unique_ptr<Selector> New(double mass, int most_rows = 0,
                                                     double reuse = 0) {
    return MakeMassSelector({.shape = Shape(),
                             .granularity = GetParam(),
                             .mass = mass,
                             .most_rows = most_rows,
                             .reuse = reuse});
  }

  // Keys of a page gather around a direction of the page's own, so that queries tell pages apart.
  void Step(Selector* selector, int num_tokens, int first_position) {
    const ModelShape shape = Shape();
    const size_t floats = size_t(shape.num_kv_heads) * shape.head_dim;
    StepSignals step = {.num_tokens = num_tokens};
    std::vector<std::vector<float>> keys(shape.num_layers, std::vector<float>(num_tokens * floats));
    std::vector<Position> positions(num_tokens);
    for (int t = 0; t < num_tokens; ++t) {
      positions[t] = first_position + t;
      for (int layer = 0; layer < shape.num_layers; ++layer) {
        for (size_t i = 0; i < floats; ++i) {
          keys[layer][t * floats + i] = KeyAt(positions[t], layer, static_cast<int>(i));
        }
      }
    }
    for (const auto& of_layer : keys) step.keys.push_back(of_layer);
    for (int group = 0; group < num_groups(); ++group) {
      selector->Append(group, positions);
      selector->ObserveGroup(group, {.num_new_rows = num_tokens}, step);
    }
  }
  void ReadTo(Selector* selector, int from, int to, int chunk) {
    for (; from < to; from += chunk) Step(selector, std::min(chunk, to - from), from);
  }
  [[nodiscard]] float KeyAt(Position position, int layer, int i) const {
    const uint64_t channel = 10 * layer + i + 1000 * salt_;
    return 2 * Noise((uint64_t{1} << 40) + position / kPage, channel) +
           0.5f * Noise(position, channel);
  }
  // About normally distributed: a sum of four parts of a hash.
  static float Noise(uint64_t a, uint64_t b) {
    uint64_t x = (a * 0x9e3779b97f4a7c15) ^ (b * 0xbf58476d1ce4e5b9);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    x ^= x >> 31;
    float sum = 0;
    for (int i = 0; i < 4; ++i, x >>= 16) sum += static_cast<float>(x & 0xffff) / 65536 - 0.5f;
    return sum * 1.732f;
  }
  std::vector<float> Query() {
    std::vector<float> q(size_t(Shape().num_q_heads) * Shape().head_dim);
    for (float& x : q) x = 2 * normal_(random_);
    return q;
  }
  // Appends the row of the token at hand, whose key is not known yet, as a step does.
  std::vector<std::vector<uint32_t>> Select(Selector* selector, int layer, std::span<const float> q,
                                            int num_parts = 3) {
    std::vector<std::vector<uint32_t>> rows(Shape().num_kv_heads);
    const size_t floats = q.size() / Shape().num_kv_heads;
    for (int h = 0; h < Shape().num_kv_heads; ++h) {
      const auto of_head = q.subspan(h * floats, floats);
      for (int part = 0; part < num_parts; ++part) {
        selector->Rank(layer, h, of_head, part, num_parts);
      }
      std::vector<RowRange> ranges;
      ranges.reserve((selector->NumRows(0) + 1) / 2);
      const RowRange* const at = ranges.data();
      selector->Select(layer, h, of_head, &ranges);
      EXPECT_EQ(ranges.data(), at);
      rows[h] = RowList(ranges);
    }
    return rows;
  }
  // Queries that differ from these by less than a tenth.
  std::vector<float> Near(std::vector<float> q) {
    for (float& x : q) x += 0.1f * normal_(random_);
    return q;
  }
  [[nodiscard]] static std::vector<uint32_t> Foreseen(const Selector& selector, int kv_head) {
    std::vector<RowRange> ranges;
    ranges.reserve((selector.NumRows(0) + 1) / 2);
    selector.Foresee(0, kv_head, &ranges);
    return RowList(ranges);
  }
  // The share of a query head's softmax that the rows have.
  [[nodiscard]] double MassOf(const std::vector<uint32_t>& rows, int num_rows, int layer,
                              int kv_head, std::span<const float> q) const {
    const ModelShape shape = Shape();
    std::vector<double> logits(num_rows);
    for (int row = 0; row < num_rows; ++row) {
      for (int c = 0; c < shape.head_dim; ++c) {
        logits[row] += q[c] * KeyAt(row, layer, kv_head * shape.head_dim + c) / 4.0;  // sqrt(16)
      }
    }
    const double top = std::ranges::max(logits);
    double all = 0, read = 0;
    for (const double logit : logits) all += std::exp(logit - top);
    for (const uint32_t row : rows) read += std::exp(logits[row] - top);
    return rows.empty() ? 1 : read / all;
  }

  std::unique_ptr<Selector> selector_;
  uint32_t salt_ = 0;
  std::mt19937 random_{3};
  std::normal_distribution<float> normal_;
};

TEST_P(MassSelectorTest, ReadsAboutTheMassThatIsAskedForInFewRows) {
  constexpr int kRows = 40 * kPage + 9;
  for (const double mass : {0.5, 0.9, 0.99}) {
    Make(mass);
    ReadTo(selector_.get(), 0, kRows, 100);
    double read_mass = 0, read_rows = 0;
    int count = 0;
    for (int i = 0; i < 20; ++i) {
      const std::vector<float> q = Query();
      const auto rows = Select(selector_.get(), i % 2, q);
      for (int head = 0; head < Shape().num_q_heads; ++head) {
        const int kv_head = head / 3;
        const auto of_head = std::span(q).subspan(head * Shape().head_dim, Shape().head_dim);
        read_mass += MassOf(rows[kv_head], kRows, i % 2, kv_head, of_head);
        read_rows += rows[kv_head].empty() ? kRows : static_cast<double>(rows[kv_head].size());
        ++count;
      }
    }
    EXPECT_GT(read_mass / count, mass - 0.02) << mass;
    EXPECT_LT(read_rows / count, 0.7 * kRows) << mass;
  }
}

// The pages that a limit leaves are those of the union with the largest shares: reading them leaves
// less of the attention unread than reading as many others.
TEST_P(MassSelectorTest, ALimitOfRowsKeepsThePagesWithTheLargestShares) {
  constexpr int kRows = 40 * kPage + 9;
  constexpr size_t kMost = 12 * kPage;
  const auto limited = New(0.99, kMost), unlimited = New(0.99);
  for (Selector* selector : {limited.get(), unlimited.get()}) ReadTo(selector, 0, kRows, 100);
  double of_kept = 0, of_dropped = 0;
  int num_limited = 0;
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> q = Query();
    const auto few = Select(limited.get(), i % 2, q), many = Select(unlimited.get(), i % 2, q);
    for (int h = 0; h < Shape().num_kv_heads; ++h) {
      if (many[h].size() <= kMost) {
        EXPECT_EQ(few[h], many[h]);
        continue;
      }
      EXPECT_LE(few[h].size(), kMost);
      EXPECT_GT(few[h].size(), kMost - kPage);
      ++num_limited;
      EXPECT_TRUE(std::ranges::includes(many[h], few[h]));
      std::vector<uint32_t> dropped;
      std::ranges::set_difference(many[h], few[h], std::back_inserter(dropped));
      ASSERT_FALSE(dropped.empty());
      dropped.resize(std::min(dropped.size(), few[h].size() - 4 * kPage));
      const std::vector<uint32_t> kept(few[h].begin() + kPage,
                                       few[h].begin() + kPage + dropped.size());
      const auto of_head = std::span(q).subspan(h * 3 * Shape().head_dim, Shape().head_dim);
      of_kept += MassOf(kept, kRows, i % 2, h, of_head);
      of_dropped += MassOf(dropped, kRows, i % 2, h, of_head);
    }
  }
  EXPECT_GE(num_limited, 10);
  EXPECT_GT(of_kept, 2 * of_dropped);
  EXPECT_GT(limited->EstimatedUnreadMass(), unlimited->EstimatedUnreadMass());
  EXPECT_LT(unlimited->EstimatedUnreadMass(), 0.011);
}

TEST_P(MassSelectorTest, ALimitOfRowsHoldsWhereAllMassIsAskedFor) {
  const auto limited = New(1, 8 * kPage);
  ReadTo(limited.get(), 0, 30 * kPage, 64);
  const size_t num_rows = Select(limited.get(), 1, Query())[1].size();
  EXPECT_GT(num_rows, 7 * kPage);
  EXPECT_LE(num_rows, 8 * kPage);
  EXPECT_GT(limited->EstimatedUnreadMass(), 0.01);
}

TEST_P(MassSelectorTest, TheFirstPageAndTheNewestRowsAreAlwaysRead) {
  constexpr int kRows = 30 * kPage + 5;
  Make(0.3);
  ReadTo(selector_.get(), 0, kRows, 64);
  const auto rows = Select(selector_.get(), 0, Query())[0];
  for (uint32_t row = 0; row < kPage; ++row) EXPECT_THAT(rows, Contains(row));
  for (uint32_t row = kRows - 129; row < kRows; ++row) EXPECT_THAT(rows, Contains(row));
  EXPECT_LT(rows.size(), kRows / 2);
}

TEST_P(MassSelectorTest, AllRowsAreReadWhereThereAreFewOrAllMassIsAskedFor) {
  Make(0.3);
  ReadTo(selector_.get(), 0, 5 * kPage, 64);
  EXPECT_THAT(Select(selector_.get(), 1, Query())[1], IsEmpty());
  Make(1);
  ReadTo(selector_.get(), 0, 30 * kPage, 64);
  EXPECT_THAT(Select(selector_.get(), 1, Query())[1], IsEmpty());
}

TEST_P(MassSelectorTest, TheChoiceDependsNeitherOnChunksNorOnParts) {
  constexpr int kRows = 20 * kPage + 33;
  auto chunks = New(0.8), tokens = New(0.8);
  ReadTo(chunks.get(), 0, kRows, 512);
  ReadTo(tokens.get(), 0, kRows, 1);
  for (int i = 0; i < 10; ++i) {
    const std::vector<float> q = Query();
    EXPECT_EQ(Select(chunks.get(), i % 2, q, 1), Select(tokens.get(), i % 2, q, 5));
  }
}

// Rows that a roll-back takes away leave no trace, while their pages are not summarised.
TEST_P(MassSelectorTest, AfterARollBackTheChoiceIsThatOfASequenceThatNeverWentOn) {
  constexpr int kRows = 20 * kPage + 33;
  auto straight = New(0.8), rolled_back = New(0.8);
  ReadTo(straight.get(), 0, kRows, 7);
  ReadTo(rolled_back.get(), 0, kRows - 40, 7);
  salt_ = 5;
  ReadTo(rolled_back.get(), kRows - 40, kRows + 20, 1);
  salt_ = 0;
  std::vector<uint32_t> kept(kRows - 40);
  std::iota(kept.begin(), kept.end(), 0);
  for (int group = 0; group < num_groups(); ++group) rolled_back->Retain(group, kept);
  ReadTo(rolled_back.get(), kRows - 40, kRows, 3);
  for (int i = 0; i < 10; ++i) {
    const std::vector<float> q = Query();
    EXPECT_EQ(Select(straight.get(), i % 2, q), Select(rolled_back.get(), i % 2, q));
  }
}

// A device that multiplies in its stead has the selector's vectors and gives it products.
TEST_P(MassSelectorTest, ProductsOfADeviceMakeTheSameChoice) {
  constexpr int kRows = 24 * kPage + 33, kDim = 16, kQueries = 3;
  Make(0.8);
  ReadTo(selector_.get(), 0, kRows, 50);
  auto* const vectors = dynamic_cast<RankVectors*>(selector_.get());
  ASSERT_NE(vectors, nullptr);
  const AttentionLayout layout(Shape(), GetParam());
  std::vector<uint16_t> first(kDim), second(kDim);
  for (int i = 0; i < 10; ++i) {
    const std::vector<float> q = Query();
    const int layer = i % 2;
    const auto expected = Select(selector_.get(), layer, q);
    for (int head = 0; head < Shape().num_kv_heads; ++head) {
      const int stream = layout.StreamOf(layer, head);
      const size_t num_pages = vectors->NumRankPages(layout.GroupOf(stream));
      ASSERT_GT(num_pages, 15u);
      const size_t num_keys = vectors->NumRankKeys();
      std::vector<float> keys(kQueries * num_keys), means(kQueries * 40), variances(kQueries * 50);
      const auto of_head = std::span(q).subspan(head * kQueries * kDim, kQueries * kDim);
      const auto product = [&](int query, const std::vector<uint16_t>& vector, bool squares) {
        double sum = 0;
        for (int c = 0; c < kDim; ++c) {
          const double x = vectors->RankScale() * of_head[query * kDim + c];
          sum += (squares ? x * x : x) * FloatOfF16(vector[c]);
        }
        return static_cast<float>(sum);
      };
      for (int query = 0; query < kQueries; ++query) {
        for (size_t key = 0; key < num_keys; ++key) {
          vectors->CopyRankKey(stream, key, first);
          keys[query * num_keys + key] = product(query, first, false);
        }
        for (size_t page = 0; page < num_pages; ++page) {
          vectors->CopyRankPage(stream, page, first, second);
          means[query * 40 + page] = product(query, first, false);
          variances[query * 50 + page] = product(query, second, true);
        }
      }
      vectors->SetRankProducts(layer, head, kQueries,
                               {.keys = keys.data(),
                                .means = means.data(),
                                .variances = variances.data(),
                                .keys_stride = num_keys,
                                .means_stride = 40,
                                .variances_stride = 50});
      std::vector<RowRange> ranges;
      ranges.reserve(kRows);
      selector_->Select(layer, head, of_head, &ranges);
      EXPECT_FALSE(expected[head].empty());
      EXPECT_EQ(RowList(ranges), expected[head]);
    }
  }
}

// A vector that changes gets another version, which no other vector has or had.
TEST_P(MassSelectorTest, VersionsTellVectorsThatChangedFromOthers) {
  const AttentionLayout layout(Shape(), GetParam());
  auto other = New(0.8);
  Make(0.8);
  std::map<std::vector<int>, std::pair<uint64_t, std::vector<uint16_t>>> known;
  std::map<uint64_t, std::vector<int>> owners;
  int unchanged = 0;
  const auto check = [&](const Selector* selector, int number, const char* after) {
    const auto& vectors = dynamic_cast<const RankVectors&>(*selector);
    const auto compare = [&](int group, int kind, size_t at, uint64_t version) {
      std::vector<uint16_t> all, mean(16), variance(16);
      const int begin = layout.FirstStreamOf(group);
      for (int stream = begin; stream < begin + layout.NumStreamsOf(group); ++stream) {
        if (kind == 0) {
          vectors.CopyRankKey(stream, at, mean);
          all.insert(all.end(), mean.begin(), mean.end());
        } else {
          vectors.CopyRankPage(stream, at, mean, variance);
          all.insert(all.end(), mean.begin(), mean.end());
          all.insert(all.end(), variance.begin(), variance.end());
        }
      }
      const std::vector<int> name = {number, group, kind, static_cast<int>(at)};
      if (version != 0) {
        const auto [owner, is_new] = owners.emplace(version, name);
        ASSERT_EQ(owner->second, name) << after;
      }
      auto& [version_before, before] = known[name];
      if (!before.empty() && version == version_before) {
        ASSERT_EQ(all, before) << after << ", kind " << kind << " at " << at;
        ++unchanged;
      }
      version_before = version;
      before = all;
    };
    for (int group = 0; group < num_groups(); ++group) {
      for (size_t key = 0; key < vectors.NumRankKeys(); ++key) {
        compare(group, 0, key, vectors.RankKeyVersion(group, key));
      }
      for (size_t page = 0; page < vectors.NumRankPages(group); ++page) {
        compare(group, 1, page, vectors.RankPageVersion(group, page));
      }
    }
  };
  const auto retain = [&](size_t from, size_t to) {
    std::vector<uint32_t> kept(to - from);
    std::iota(kept.begin(), kept.end(), static_cast<uint32_t>(from));
    for (int group = 0; group < num_groups(); ++group) selector_->Retain(group, kept);
  };
  ReadTo(selector_.get(), 0, 8 * kPage + 9, 70);
  check(selector_.get(), 0, "a prompt");
  for (int i = 0; i < 90; ++i) {
    const int position = 8 * kPage + 9 + i;
    ReadTo(selector_.get(), position, position + 1, 1);
    check(selector_.get(), 0, "a token");
  }
  ReadTo(other.get(), 0, 5 * kPage, 70);
  check(other.get(), 1, "another selector");
  retain(0, 8 * kPage + 40);
  check(selector_.get(), 0, "a roll-back");
  ReadTo(selector_.get(), 8 * kPage + 40, 10 * kPage, 9);
  check(selector_.get(), 0, "rows after it");
  retain(kPage + 5, 10 * kPage);
  check(selector_.get(), 0, "rows that leave a window");
  retain(70, 9 * kPage - 6);
  check(selector_.get(), 0, "both");
  StateWriter saved;
  ASSERT_TRUE(other->SaveState(&saved).ok());
  StateReader from(saved.bytes(), "a selector");
  ASSERT_TRUE(selector_->LoadState(&from).ok());
  check(selector_.get(), 0, "another selector's state");
  ReadTo(selector_.get(), 5 * kPage, 12 * kPage, 40);
  auto third = New(0.8);
  const auto num_rows = selector_->NumRowsToShare(12 * kPage);
  ASSERT_TRUE(num_rows.has_value());
  third->TakeFirstRows(*selector_, *num_rows);
  check(third.get(), 2, "a prefix");
  ReadTo(third.get(), static_cast<int>(*num_rows), 12 * kPage, 30);
  EXPECT_GT(dynamic_cast<RankVectors&>(*third).NumRankPages(0), 5u);
  for (size_t page = 0; page < dynamic_cast<RankVectors&>(*third).NumRankPages(0); ++page) {
    EXPECT_NE(dynamic_cast<RankVectors&>(*third).RankPageVersion(0, page), 0u);
  }
  check(third.get(), 2, "rows behind a prefix");
  EXPECT_GT(unchanged, 10000);
}

// Pages that lost their keys keep their summaries, and new rows begin pages of their own.
TEST_P(MassSelectorTest, ADeepRollBackLeavesAllRowsReachable) {
  Make(0.8);
  ReadTo(selector_.get(), 0, 20 * kPage, 64);
  std::vector<uint32_t> kept(9 * kPage + 20);
  std::iota(kept.begin(), kept.end(), 0);
  for (int group = 0; group < num_groups(); ++group) selector_->Retain(group, kept);
  EXPECT_EQ(selector_->NumRows(0), kept.size());
  ReadTo(selector_.get(), 9 * kPage + 20, 30 * kPage, 50);
  double mass = 0;
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> q = Query();
    const auto rows = Select(selector_.get(), i % 2, q);
    mass += MassOf(rows[0], 30 * kPage, i % 2, 0, std::span(q).first(Shape().head_dim));
  }
  EXPECT_GT(mass / 20, 0.78);
}

// Layers with windows evict their oldest rows.
TEST_P(MassSelectorTest, RowsMayGoFromTheFront) {
  Make(0.8);
  ReadTo(selector_.get(), 0, 20 * kPage, 64);
  for (int i = 0; i < 3 * static_cast<int>(kPage); ++i) {
    Step(selector_.get(), 1, 20 * kPage + i);
    std::vector<uint32_t> kept(selector_->NumRows(0) - (i == 0 ? 100 : 1));
    std::iota(kept.begin(), kept.end(), i == 0 ? 100 : 1);
    for (int group = 0; group < num_groups(); ++group) selector_->Retain(group, kept);
  }
  const auto rows = Select(selector_.get(), 0, Query())[0];
  const auto num_rows = static_cast<uint32_t>(selector_->NumRows(0));
  for (uint32_t row = num_rows - 129; row < num_rows; ++row) EXPECT_THAT(rows, Contains(row));
  EXPECT_THAT(rows, Not(IsEmpty()));
}

TEST_P(MassSelectorTest, ASavedStateChoosesAlikeAndADamagedOneIsRefused) {
  auto saved = New(0.8), loaded = New(0.8);
  ReadTo(saved.get(), 0, 20 * kPage + 33, 64);
  StateWriter to;
  ASSERT_TRUE(saved->SaveState(&to).ok());
  StateReader from(to.bytes(), "test");
  ASSERT_TRUE(loaded->LoadState(&from).ok());
  ASSERT_TRUE(from.End().ok());
  for (Selector* selector : {saved.get(), loaded.get()}) {
    ReadTo(selector, 20 * kPage + 33, 25 * kPage, 1);
  }
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> q = Query();
    EXPECT_EQ(Select(saved.get(), i % 2, q), Select(loaded.get(), i % 2, q));
  }
  const std::span<const std::byte> bytes = to.bytes();
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 3) {
    StateReader cut(bytes.first(size), "test");
    auto selector = New(0.8);
    EXPECT_FALSE(selector->LoadState(&cut).ok() && cut.End().ok()) << size;
  }
}

TEST_P(MassSelectorTest, SimilarQueriesReuseTheChoiceOfTheTokenBefore) {
  constexpr int kRows = 20 * kPage + 33;
  auto own = New(0.5), reusing = New(0.5, 0, /*reuse=*/0.9);
  for (Selector* selector : {own.get(), reusing.get()}) ReadTo(selector, 0, kRows, 64);
  const std::vector<float> first = Query(), second = Near(first), third = Query();
  auto chosen = Select(own.get(), 0, first);
  EXPECT_EQ(Select(reusing.get(), 0, first), chosen);  // there is no choice before
  for (int h = 0; h < 2; ++h) EXPECT_EQ(Foreseen(*reusing, h), chosen[h]);
  EXPECT_THAT(Foreseen(*own, 0), IsEmpty());
  for (Selector* selector : {own.get(), reusing.get()}) Step(selector, 1, kRows);
  for (std::vector<uint32_t>& rows : chosen) rows.push_back(kRows);
  EXPECT_NE(Select(own.get(), 0, second), chosen);
  EXPECT_EQ(Select(reusing.get(), 0, second), chosen);
  // The token's own choice is the one that the next token may reuse.
  chosen = Select(own.get(), 0, second);
  for (int h = 0; h < 2; ++h) EXPECT_EQ(Foreseen(*reusing, h), chosen[h]);
  for (Selector* selector : {own.get(), reusing.get()}) Step(selector, 1, kRows + 1);
  EXPECT_EQ(Select(reusing.get(), 0, third), Select(own.get(), 0, third));
  // A token without a choice lies between.
  for (Selector* selector : {own.get(), reusing.get()}) ReadTo(selector, kRows + 2, kRows + 4, 1);
  const std::vector<float> fourth = Near(third);
  EXPECT_EQ(Select(reusing.get(), 0, fourth), Select(own.get(), 0, fourth));
}

// A step that failed and is taken again, or a roll-back, finds the choice before it.
TEST_P(MassSelectorTest, ARepeatedStepReusesTheSameChoice) {
  constexpr int kRows = 20 * kPage + 33;
  auto selector = New(0.5, 0, /*reuse=*/0.9);
  ReadTo(selector.get(), 0, kRows, 64);
  const std::vector<float> first = Query(), second = Near(first);
  Select(selector.get(), 0, first);
  Step(selector.get(), 1, kRows);
  const auto chosen = Select(selector.get(), 0, second);
  std::vector<uint32_t> kept(kRows);
  std::iota(kept.begin(), kept.end(), 0);
  const auto retain = [&] {
    for (int group = 0; group < num_groups(); ++group) selector->Retain(group, kept);
  };
  retain();
  Step(selector.get(), 1, kRows);
  EXPECT_EQ(Select(selector.get(), 0, second), chosen);
  // Rows of the choice itself went.
  kept.resize(kRows - 10);
  retain();
  ReadTo(selector.get(), kRows - 10, kRows + 1, 1);
  auto own = New(0.5);
  ReadTo(own.get(), 0, kRows + 1, 64);
  EXPECT_EQ(Select(selector.get(), 0, second), Select(own.get(), 0, second));
}

TEST_P(MassSelectorTest, AReusedChoiceKeepsTheLimitOfRows) {
  constexpr int kRows = 20 * kPage + 33;
  auto selector = New(1, 512, /*reuse=*/0.9);
  ReadTo(selector.get(), 0, kRows, 64);
  std::vector<float> q = Query();
  for (int i = 0; i < 80; ++i) {
    for (const auto& rows : Select(selector.get(), 0, q)) EXPECT_LE(rows.size(), 512u) << i;
    Step(selector.get(), 1, kRows + i);
    q = Near(q);
  }
}

TEST_P(MassSelectorTest, ASavedChoiceIsReusedAndADamagedOneIsRefused) {
  constexpr int kRows = 20 * kPage + 33;
  const auto make = [] { return New(0.5, 0, /*reuse=*/0.9); };
  auto saved = make(), loaded = make();
  ReadTo(saved.get(), 0, kRows, 64);
  const std::vector<float> first = Query(), second = Near(first);
  for (int layer = 0; layer < 2; ++layer) Select(saved.get(), layer, first);
  StateWriter to;
  ASSERT_TRUE(saved->SaveState(&to).ok());
  StateReader from(to.bytes(), "test");
  ASSERT_TRUE(loaded->LoadState(&from).ok());
  ASSERT_TRUE(from.End().ok());
  for (Selector* selector : {saved.get(), loaded.get()}) Step(selector, 1, kRows);
  const auto chosen = Select(saved.get(), 0, second);
  EXPECT_EQ(Select(loaded.get(), 0, second), chosen);
  auto own = New(0.5);
  ReadTo(own.get(), 0, kRows + 1, 64);
  EXPECT_NE(Select(own.get(), 0, second), chosen);
  std::vector<std::byte> bytes(to.bytes().begin(), to.bytes().end());
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 3) {
    StateReader cut({bytes.data(), size}, "test");
    auto selector = make();
    EXPECT_FALSE(selector->LoadState(&cut).ok() && cut.End().ok()) << size;
  }
  // The last stream's second choice is none: a 0. Before it stand 3 queries of 16 numbers, the
  // length of their list, and the end of the list of pages.
  const size_t end_of_pages = bytes.size() - 3 * 16 * sizeof(float) - 2 * sizeof(uint64_t) - 1;
  EXPECT_EQ(bytes[end_of_pages], std::byte{0});
  bytes[end_of_pages] = std::byte{1};
  StateReader damaged(bytes, "test");
  EXPECT_FALSE(make()->LoadState(&damaged).ok());
}

// A sequence that is resumed and then rolled back by a token reuses the same choice as the
// original.
TEST_P(MassSelectorTest, BothChoicesAreSaved) {
  constexpr int kRows = 20 * kPage + 33;
  auto saved = New(0.5, 0, /*reuse=*/0.9), loaded = New(0.5, 0, /*reuse=*/0.9);
  ReadTo(saved.get(), 0, kRows, 64);
  const std::vector<float> first = Query(), second = Near(first);
  Select(saved.get(), 0, first);
  Step(saved.get(), 1, kRows);
  Select(saved.get(), 0, Query());
  StateWriter to;
  ASSERT_TRUE(saved->SaveState(&to).ok());
  StateReader from(to.bytes(), "test");
  ASSERT_TRUE(loaded->LoadState(&from).ok());
  std::vector<uint32_t> kept(kRows);
  std::iota(kept.begin(), kept.end(), 0);
  for (Selector* selector : {saved.get(), loaded.get()}) {
    for (int group = 0; group < num_groups(); ++group) selector->Retain(group, kept);
    Step(selector, 1, kRows);
  }
  const auto chosen = Select(saved.get(), 0, second);
  EXPECT_EQ(Select(loaded.get(), 0, second), chosen);
  auto own = New(0.5);
  ReadTo(own.get(), 0, kRows + 1, 64);
  EXPECT_NE(Select(own.get(), 0, second), chosen);
}

// A damaged file may name a choice where there are no rows.
TEST_P(MassSelectorTest, AChoiceWithoutRowsIsRefused) {
  auto empty = New(0.5, 0, /*reuse=*/0.9);
  StateWriter to;
  ASSERT_TRUE(empty->SaveState(&to).ok());
  std::vector<std::byte> bytes(to.bytes().begin(), to.bytes().end());
  // The last of the choices, which are all none.
  bytes.resize(bytes.size() - sizeof(uint64_t));
  StateWriter choice;
  choice.Number<uint64_t>(1);
  choice.Numbers<uint8_t>(std::vector<uint8_t>{0});
  choice.Numbers<float>(std::vector<float>(3 * 16));
  bytes.insert(bytes.end(), choice.bytes().begin(), choice.bytes().end());
  StateReader damaged(bytes, "test");
  EXPECT_FALSE(New(0.5, 0, /*reuse=*/0.9)->LoadState(&damaged).ok());
}

// Rows leave a window with every token.
TEST_P(MassSelectorTest, LayersWithWindowsForeseeNothing) {
  ModelShape shape = Shape();
  shape.windows = {1024, 0};
  auto selector = MakeMassSelector(
      {.shape = shape, .granularity = Granularity::kLayer, .mass = 0.5, .reuse = 0.9});
  const size_t floats = size_t(shape.num_kv_heads) * shape.head_dim;
  std::vector<Position> positions(20 * kPage);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> keys(positions.size() * floats);
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = KeyAt(static_cast<Position>(i / floats), 0, static_cast<int>(i % floats));
  }
  StepSignals step = {.num_tokens = static_cast<int>(positions.size())};
  step.keys = {keys, keys};
  for (int group = 0; group < 2; ++group) {
    selector->Append(group, positions);
    selector->ObserveGroup(group, {.num_new_rows = step.num_tokens}, step);
  }
  const std::vector<float> q = Query();
  for (int layer = 0; layer < 2; ++layer) {
    EXPECT_THAT(Select(selector.get(), layer, q)[0], Not(IsEmpty()));
    std::vector<RowRange> ranges;
    ranges.reserve(positions.size());
    selector->Foresee(layer, 0, &ranges);
    EXPECT_EQ(ranges.empty(), layer == 0);
  }
}

// Keys that are not finite, or as large as numbers get, leave a choice that reads the newest rows.
TEST_P(MassSelectorTest, NumbersThatAreNotFiniteAreSurvived) {
  Make(0.8);
  ReadTo(selector_.get(), 0, 20 * kPage, 64);
  for (const float x : {1e30f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> q = Query();
    q[3] = x;
    const auto rows = Select(selector_.get(), 0, q)[0];
    if (!rows.empty()) {
      EXPECT_THAT(rows, Contains(20 * kPage - 1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, MassSelectorTest,
                         ::testing::Values(Granularity::kToken, Granularity::kLayer,
                                           Granularity::kHead));

}  // namespace
}  // namespace ebb
