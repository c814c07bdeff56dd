// Parses tier options. MakePolicy() checks their combinations.
#include "ebb/tiers.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ebb/types.h"
#include "src/base/key_values.h"
#include "src/base/names.h"
#include "src/base/text/size_text.h"

namespace ebb {
namespace {

constexpr std::array<Named<T1Place>, 3> kT1Places = {
    {{"none", T1Place::kNone}, {"host", T1Place::kHost}, {"file", T1Place::kFile}}};

constexpr std::array<Named<CompressedType>, 5> kCompressedTypes = {
    {{"int8", CompressedType::kInt8},
     {"int4", CompressedType::kInt4},
     {"int3", CompressedType::kInt3},
     {"int2", CompressedType::kInt2},
     {"int8_naive", CompressedType::kInt8Naive}}};

Status Malformed(std::string_view what, std::string_view text, std::string_view why,
                 std::string_view expected) {
  return InvalidArgument(fmt::format("{} \"{}\": {}; write {}", what, text, why, expected));
}

// Parses a number; nullopt if anything else is in `text`.
template <typename T>
std::optional<T> ReadNumber(std::string_view text) {
  T number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

// Parses a percentage: 0.125 for "12.5%". Returns nullopt for other text and outside of 0% to 100%.
std::optional<double> ParseShare(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  text.remove_suffix(1);
  const std::optional<double> percent = ReadNumber<double>(text);
  if (!percent || !(*percent >= 0 && *percent <= 100) || std::signbit(*percent)) {
    return std::nullopt;
  }
  return *percent / 100;
}

// Returns a question after a message about a share that lacks its '%', or an empty text.
std::string MeantShare(std::string_view number) {
  return ParseShare(fmt::format("{}%", number)).has_value()
             ? fmt::format("; did you mean {}%?", number)
             : "";
}

constexpr std::string_view kNotAShare = "not a share from 0% to 100%";

}  // namespace

std::string_view T1PlaceName(T1Place place) { return NameOf(kT1Places, place); }

std::string_view CompressedTypeName(CompressedType type) { return NameOf(kCompressedTypes, type); }

std::optional<CompressedType> CompressedKvType(std::string_view name) {
  // q8_0 and q4_0 are llama.cpp's names of the caches with as many bits.
  constexpr std::array<Named<CompressedType>, 6> kTypes = {{{"q8", CompressedType::kInt8},
                                                            {"q4", CompressedType::kInt4},
                                                            {"q3", CompressedType::kInt3},
                                                            {"q2", CompressedType::kInt2},
                                                            {"q8_0", CompressedType::kInt8},
                                                            {"q4_0", CompressedType::kInt4}}};
  return ValueOf(kTypes, name);
}

Result<CompressedType> ParseCompressedType(std::string_view name) {
  if (const auto type = ValueOf(kCompressedTypes, name); type.has_value()) return *type;
  return InvalidArgument(
      fmt::format("expected int8, int4, int3, int2 or int8_naive, found \"{}\"", name));
}

Status CheckCompressedType(CompressedType type, int head_dim, bool on_device) {
  if (!HoldsHeads(type, head_dim)) {
    return Unsupported(
        fmt::format("int2 (q2) needs heads of a multiple of {} channels, and this model's have {}; "
                    "int3 (q3) takes them",
                    kInt2HeadStep, head_dim));
  }
  if (type != CompressedType::kInt2 || !on_device) return OkStatus();
  return Unsupported("devices do not read int2 (q2); they read int3 (q3)");
}

Status ParseT0(std::string_view text, TierSetting* tiers) {
  if (text.ends_with('%')) {
    const std::optional<double> share = ParseShare(text);
    if (!share) return Malformed("T0", text, kNotAShare, "a share (50%) or a cap (512MiB)");
    tiers->shares.t0_share = *share;
    tiers->engine.t0_cap_bytes = 0;
    return OkStatus();
  }
  if (const Status status = CheckHasUnit(text, "MiB", /*may_be_share=*/true); !status.ok()) {
    return status.WithPrefix("T0");
  }
  const Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) {
    const double fraction = ReadNumber<double>(text).value_or(0);
    return Malformed(
        "T0", text,
        fraction > 0 && fraction < 1
            ? fmt::format("neither a share nor a size; did you mean {:g}%?", 100 * fraction)
            : "neither a share nor a size",
        "a share (50%) or a cap (512MiB)");
  }
  tiers->engine.t0_cap_bytes = *bytes;
  tiers->shares.t0_share.reset();
  return OkStatus();
}

Status ParseT1(std::string_view text, TierSetting* tiers) {
  constexpr std::string_view kExpected = "none, host[,SIZE] or file[:PATH][,SIZE]";
  const auto refuse = [&](std::string_view why) { return Malformed("T1", text, why, kExpected); };
  std::string_view place = text;
  uint64_t cap_bytes = 0;
  if (const size_t comma = text.rfind(','); comma != std::string_view::npos) {
    place = text.substr(0, comma);
    const std::string_view size = text.substr(comma + 1);
    if (const Status status = CheckHasUnit(size, "MiB"); !status.ok()) {
      return status.WithPrefix("T1");
    }
    const Result<uint64_t> bytes = ParseBytes(size);
    // Without a size there is no cap, so that "file:a,b," is the folder "a,b".
    if (!size.empty() && !bytes.ok()) {
      return refuse(
          "the text after the last comma is not a size; a folder with a comma in its name is "
          "followed "
          "by one more comma (file:a,b,)");
    }
    if (bytes.ok()) cap_bytes = *bytes;
  }
  const size_t colon = place.find(':');
  const std::string_view name = place.substr(0, colon);
  const bool has_path = colon != std::string_view::npos;
  const std::string_view path = has_path ? place.substr(colon + 1) : std::string_view();

  const std::optional<T1Place> where = ValueOf(kT1Places, name);
  if (!where.has_value()) return refuse("not a place");
  if (has_path && where != T1Place::kFile) return refuse("only a file has a path");
  if (has_path && path.empty()) return refuse("the path is empty");
  if (cap_bytes > 0 && where == T1Place::kNone) return refuse("none has no size");
  tiers->engine.t1 = *where;
  tiers->engine.t1_path = path;
  tiers->engine.t1_cap_bytes = cap_bytes;
  return OkStatus();
}

Status ParseT1Read(std::string_view text, TierSetting* tiers) {
  constexpr std::string_view kSelect = "select";
  if (text == "all") {
    tiers->shares.t1_read = T1Read::kAll;
    return OkStatus();
  }
  const bool selects = text == kSelect || text.starts_with("select:");
  // --draft calls this function for texts that begin with "select" and does not accept "all", so
  // that the message must not offer it there.
  const auto refuse = [&](std::string_view why) {
    return Malformed(
        "rows read of T1", text, why,
        fmt::format("{}select, or select: followed by any of mass=0.9, rows=1024 and reuse=0.8, "
                    "with commas",
                    selects ? "" : "all, "));
  };
  if (!selects) return refuse("neither all nor select");
  double mass = TierShares().t1_mass;
  int rows = 0;
  double reuse = 0;
  std::vector<KeyValue> parts;
  if (text != kSelect) {
    auto read = ParseKeyValues(text.substr(kSelect.size() + 1));
    if (!read.ok()) return refuse(read.status().message());
    parts = *std::move(read);
  }
  for (const auto& [key, value] : parts) {
    if (key == "mass") {
      const auto read = ReadNumber<double>(value);
      if (!read || !(*read > 0 && *read <= 1)) {
        return refuse("the mass is not above 0 and at most 1");
      }
      mass = *read;
    } else if (key == "rows") {
      const auto read = ReadNumber<int>(value);
      if (!read || *read < kFewestSelectedRows) {
        return refuse(fmt::format("the rows are not a number of at least {}", kFewestSelectedRows));
      }
      rows = *read;
    } else if (key == "reuse") {
      const auto read = ReadNumber<double>(value);
      if (!read || !(*read > 0 && *read <= 1)) {
        return refuse("the cosine of reuse is not above 0 and at most 1");
      }
      reuse = *read;
    } else {
      return refuse("neither mass= nor rows= nor reuse=");
    }
  }
  tiers->shares.t1_read = T1Read::kSelect;
  tiers->shares.t1_mass = mass;
  tiers->shares.t1_rows = rows;
  tiers->shares.t1_reuse = reuse;
  return OkStatus();
}

Status ParseT2(std::string_view text, TierSetting* tiers) {
  constexpr std::string_view kExpected =
      "a share, or old, and after a colon int8, int4, int3, int2 or int8_naive (25%:int8, "
      "old:int4); old "
      "takes first=N and newest=N after commas (old:int4,first=4,newest=16)";
  const std::string_view whole = text;
  const size_t comma = text.find(',');
  text = text.substr(0, comma);
  const size_t colon = text.find(':');
  const bool old = text.substr(0, colon) == "old";
  const std::optional<double> share = old ? 0 : ParseShare(text.substr(0, colon));
  if (!share) {
    return Malformed("T2", whole, "neither a share from 0% to 100% nor old",
                     fmt::format("{}{}", kExpected, MeantShare(text.substr(0, colon))));
  }
  CompressedType type = kDefaultT2Type;
  if (colon != std::string_view::npos) {
    const Result<CompressedType> named = ParseCompressedType(text.substr(colon + 1));
    if (!named.ok()) return Malformed("T2", whole, "not a compressed format", kExpected);
    type = *named;
  }
  int first = kFirstRowsInT0, newest = kNewestBesideT2.least;
  if (comma != std::string_view::npos) {
    const auto parts = ParseKeyValues(whole.substr(comma + 1));
    if (!parts.ok()) return Malformed("T2", whole, parts.status().message(), kExpected);
    if (!old) return Malformed("T2", whole, "a share takes no more than a format", kExpected);
    for (const auto& [key, value] : *parts) {
      const auto number = ReadNumber<int>(value);
      if ((key != "first" && key != "newest") || !number || *number < (key == "first" ? 0 : 1)) {
        return Malformed("T2", whole,
                         "neither first= with 0 or more rows nor newest= with 1 or more",
                         kExpected);
      }
      (key == "first" ? first : newest) = *number;
    }
  }
  tiers->shares.t2_rows = old ? T2Rows::kOld : T2Rows::kShare;
  tiers->shares.t2_first = first;
  tiers->shares.t2_newest = newest;
  tiers->shares.t2_share = *share;
  tiers->engine.t2_type.reset();
  if (HasT2(tiers->shares)) tiers->engine.t2_type = type;
  return OkStatus();
}

Status ParseEvict(std::string_view text, TierSetting* tiers) {
  const bool caps = text == "caps";
  const std::optional<double> share = caps ? 0 : ParseShare(text);
  if (!share) {
    return Malformed("evicted share", text, kNotAShare,
                     fmt::format("it as 10%, or caps: what the caps on T0 and T1 leave out{}",
                                 MeantShare(text)));
  }
  tiers->shares.evict_share = *share;
  tiers->shares.evict_beyond_caps = caps;
  return OkStatus();
}

Status ParseEvictOf(std::string_view text, TierSetting* tiers) {
  if (text == "generated") {
    tiers->shares.evict_of = EvictOf::kGenerated;
  } else if (text == "alive") {
    tiers->shares.evict_of = EvictOf::kAlive;
  } else {
    return InvalidArgument(
        fmt::format("unknown base of the evicted share \"{}\"; valid: generated, alive", text));
  }
  return OkStatus();
}

}  // namespace ebb
