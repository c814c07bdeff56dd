#include "apps/common/models/gguf_names.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

namespace ebb::cli {
namespace {

constexpr std::string_view kExtension = ".gguf";
constexpr std::array<std::string_view, 2> kUsualQuants = {"Q4_K_M", "Q8_0"};

std::string Upper(std::string_view text) {
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper;
}

// Returns the number of exactly five digits, or -1 if the text is none.
int FiveDigits(std::string_view text) {
  if (text.size() != 5) return -1;
  int number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return -1;
    number = number * 10 + (c - '0');
  }
  return number;
}

// Returns whether `tag`, in upper case, occurs in the path before a dot or a hyphen: "Q8_0." or
// "Q8_0-".
bool HasTag(std::string_view path, std::string_view tag) {
  const std::string upper = Upper(path);
  for (size_t at = upper.find(tag); at != std::string::npos; at = upper.find(tag, at + 1)) {
    const size_t end = at + tag.size();
    if (end < upper.size() && (upper[end] == '.' || upper[end] == '-')) return true;
  }
  return false;
}

}  // namespace

std::optional<SplitName> ParseSplitName(std::string_view path) {
  if (!path.ends_with(kExtension)) return std::nullopt;
  SplitName name = {.stem = std::string(path.substr(0, path.size() - kExtension.size()))};
  // "-00001-of-00003"
  constexpr size_t kSuffix = 15;
  if (name.stem.size() <= kSuffix) return name;
  const std::string_view suffix = std::string_view(name.stem).substr(name.stem.size() - kSuffix);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-") return name;
  const int index = FiveDigits(suffix.substr(1, 5));
  const int count = FiveDigits(suffix.substr(10));
  if (index < 0 || count < 0) return name;
  if (index < 1 || index > count) return std::nullopt;
  return SplitName{
      .stem = name.stem.substr(0, name.stem.size() - kSuffix), .index = index, .count = count};
}

std::string PartName(const SplitName& name, int index) {
  if (name.count == 1) return name.stem + std::string(kExtension);
  return fmt::format("{}-{:05}-of-{:05}{}", name.stem, index, name.count, kExtension);
}

std::string QuantTag(std::string_view path) {
  const auto name = ParseSplitName(path);
  if (!name) return "";
  const size_t begin = name->stem.find_last_of("-./") + 1;
  const std::string tag = Upper(name->stem.substr(begin));
  const bool is_plain =
      std::ranges::all_of(tag, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  constexpr std::array<std::string_view, 8> kKinds = {"Q",  "IQ",  "TQ",   "F16",
                                                      "BF", "F32", "MXFP", "NVFP"};
  const bool is_known = std::ranges::any_of(kKinds, [&](std::string_view kind) {
    return tag.starts_with(kind) &&
           (std::isdigit(static_cast<unsigned char>(kind.back())) != 0 ||
            (tag.size() > kind.size() &&
             std::isdigit(static_cast<unsigned char>(tag[kind.size()])) != 0));
  });
  return begin > 0 && is_plain && is_known ? tag : "";
}

bool IsModelFile(std::string_view path) {
  const auto name = ParseSplitName(path);
  if (!name || name->index != 1) return false;
  const std::string_view file = path.substr(path.rfind('/') + 1);
  constexpr std::array<std::string_view, 6> kOthers = {"mmproj",  "imatrix", "mtp-",
                                                       "eagle3-", "dflash-", "dspark-"};
  return std::ranges::none_of(
      kOthers, [&](std::string_view other) { return file.find(other) != std::string_view::npos; });
}

std::optional<std::string> ChooseModelFile(std::span<const std::string> paths,
                                           std::string_view quant) {
  std::vector<std::string> tags;
  if (quant.empty()) {
    tags.assign(kUsualQuants.begin(), kUsualQuants.end());
  } else {
    tags.push_back(Upper(quant));
  }
  for (const std::string& tag : tags) {
    for (const std::string& path : paths) {
      if (IsModelFile(path) && HasTag(path, tag)) return path;
    }
  }
  if (!quant.empty()) return std::nullopt;
  const auto first = std::ranges::find_if(paths, IsModelFile);
  return first == paths.end() ? std::nullopt : std::optional(*first);
}

bool IsFirstChoice(std::string_view path, std::string_view quant) {
  return HasTag(path, quant.empty() ? std::string(kUsualQuants.front()) : Upper(quant));
}

std::vector<std::string> QuantTags(std::span<const std::string> paths) {
  std::vector<std::string> tags;
  for (const std::string& path : paths) {
    const std::string tag = IsModelFile(path) ? QuantTag(path) : "";
    if (!tag.empty() && std::ranges::find(tags, tag) == tags.end()) tags.push_back(tag);
  }
  return tags;
}

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return std::ranges::none_of(
      path, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f' || c == '\\'; });
}

}  // namespace ebb::cli
