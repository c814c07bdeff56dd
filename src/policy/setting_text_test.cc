#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "ebb/setting_fields.h"

namespace ebb {
namespace {

// Changes a value into another one of its type.
void Change(std::string* text) { *text += "x"; }
void Change(std::map<std::string, std::string>* params) { (*params)["x"] = "1"; }
void Change(Budget* budget) { *budget = {.unit = Budget::Unit::kRows, .value = budget->value + 1}; }
void Change(bool* value) { *value = !*value; }
template <typename Number>
requires std::is_arithmetic_v<Number>
void Change(Number* number) { *number += 1; }
template <typename Choice>
requires std::is_enum_v<Choice>
void Change(Choice* choice) {
  *choice = static_cast<Choice>(static_cast<int>(*choice) == 0 ? 1 : 0);
}
template <typename T>
void Change(std::optional<T>* value) {
  if (!value->has_value()) value->emplace();
  Change(&**value);
}

TEST(SettingKey, DiffersInEveryField) {
  SessionOptions options;
  options.policy.tiers.emplace();
  std::set<std::string> keys = {SettingKey(options)};
  size_t num_settings = 1;
  const auto add = [&](const SessionOptions& changed) {
    keys.insert(SettingKey(changed));
    ++num_settings;
  };
  // Sessions of one engine share its tiers, so that their fields are not in a key.
  constexpr std::string_view kOfEngine[] = {"t0_cap_bytes", "t1", "t1_cap_bytes", "t2_type"};
  TierSetting tiers;
  VisitTierFields(tiers, [&](std::string_view name, auto& field) {
    if (std::ranges::count(kOfEngine, name) > 0) return;
    const auto before = field;
    Change(&field);
    options.policy.tiers = tiers.shares;
    add(options);
    field = before;
  });
  options.policy.tiers.emplace();
  VisitPolicyFields(options.policy, [&](std::string_view, const auto& field) {
    auto& changed = const_cast<std::remove_cvref_t<decltype(field)>&>(field);
    const auto before = changed;
    Change(&changed);
    add(options);
    changed = before;
  });
  for (const std::function<void(SessionOptions*)>& change :
       std::vector<std::function<void(SessionOptions*)>>{
           [](SessionOptions* o) { o->policy.tiers.reset(); },
           [](SessionOptions* o) { o->context = 7; },
           [](SessionOptions* o) { o->past_context = PastContext::kReRotate; },
           [](SessionOptions* o) { o->lossless.emplace(); },
           // A value that says what another field does.
           [](SessionOptions* o) { o->policy.scorer = "0:;budget=0:;"; }}) {
    SessionOptions changed = options;
    change(&changed);
    add(changed);
  }
  EXPECT_EQ(keys.size(), num_settings);
  EXPECT_EQ(num_settings, 1 + 12 + 11 + 5);
}

TEST(PolicyText, NamesWhatIsSet) {
  EXPECT_EQ(PolicyText({}), "full, seed 0");
  EXPECT_EQ(PolicyText({.name = "h2o",
                        .params = {{"heavy", "64"}, {"recent", "8"}},
                        .scorer = "tova",
                        .budget = {.unit = Budget::Unit::kPercent, .value = 25},
                        .window = 16,
                        .granularity = Granularity::kHead,
                        .seed = 3}),
            "h2o:heavy=64,recent=8, scorer tova, budget 25%, window 16, granularity head, seed 3");
}

TEST(TierOptionsText, AreTheOptionsThatMakeTheTiers) {
  EXPECT_EQ(TierOptionsText({}), "--t0 50% --t1 file");
  EXPECT_EQ(TierOptionsText({}, T0Share::kHidden), "--t1 file");
  EXPECT_EQ(TierOptionsText({.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt4},
                             .shares = {.t2_rows = T2Rows::kOld}}),
            "--t1 none --t2 old:int4");
  EXPECT_EQ(TierOptionsText({.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                             .shares = {.t0_share = 0.3,
                                        .t1_read = T1Read::kSelect,
                                        .t2_share = 0.5,
                                        .evict_share = 0.125,
                                        .evict_of = EvictOf::kAlive}}),
            "--t0 30% --t1 host --t2 50%:int8 --t1-read select --evict 12.5% --evict-of alive");
}

TEST(TierOptions, HaveEvictionByCaps) {
  const auto options =
      TierOptions({.engine = {.t0_cap_bytes = 4096}, .shares = {.evict_beyond_caps = true}});
  EXPECT_EQ(options.back(), TierOption("--evict", "caps"));
}

TEST(TierOptions, HaveCapsFoldersAndAllPartsOfReading) {
  const auto options =
      TierOptions({.engine = {.t0_cap_bytes = 4096, .t1_path = "/tmp/a", .t1_cap_bytes = 8192},
                   .shares = {.t1_read = T1Read::kSelect, .t1_rows = 512, .t1_reuse = 0.5}});
  const std::vector<TierOption> expected = {{"--t0", "4096"},
                                            {"--t1", "file:/tmp/a,8192"},
                                            {"--t1-read", "select:mass=0.9,rows=512,reuse=0.5"}};
  EXPECT_EQ(options, expected);
}

}  // namespace
}  // namespace ebb
