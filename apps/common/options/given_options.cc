#include "apps/common/options/given_options.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "apps/common/options/options.h"
#include "ebb/tiers.h"

namespace ebb::cli {
namespace {

std::string_view Description(SharedField field) {
  switch (field) {
    case SharedField::kModel:
      return "the model";
    case SharedField::kChatTemplate:
      return "the chat template";
    case SharedField::kPrompt:
      return "the prompt";
    case SharedField::kT0:
      return "what T0 holds";
    case SharedField::kT1:
      return "where T1 lies";
    case SharedField::kT1Read:
      return "which rows of T0 and T1 are read";
    case SharedField::kT2:
      return "what T2 holds";
    case SharedField::kPolicy:
      return "the policy";
    case SharedField::kBudget:
      return "the policy's budget";
    case SharedField::kSinks:
      return "the policy's sinks";
    case SharedField::kWindow:
      return "the policy's window";
    case SharedField::kInterval:
      return "the policy's interval";
  }
  return "";
}

constexpr std::array<std::pair<std::string_view, SharedField>, 16> kSharedFields = {{
    {"--model", SharedField::kModel},
    {"--hf-repo", SharedField::kModel},
    {"--chat-template", SharedField::kChatTemplate},
    {"--chat-template-file", SharedField::kChatTemplate},
    {"--prompt", SharedField::kPrompt},
    {"--file", SharedField::kPrompt},
    {"--t0", SharedField::kT0},
    {"--t1", SharedField::kT1},
    {"--t1-read", SharedField::kT1Read},
    {"--read", SharedField::kT1Read},
    {"--t2", SharedField::kT2},
    {"--policy", SharedField::kPolicy},
    {"--budget", SharedField::kBudget},
    {"--sinks", SharedField::kSinks},
    {"--window", SharedField::kWindow},
    {"--interval", SharedField::kInterval},
}};

// Returns the option as messages name it. --kv-type and --draft are shown with the name in their
// value, since that decides which fields they set.
std::string Shown(std::string_view option, std::string_view text) {
  if (option != "--kv-type" && option != "--draft") return std::string(option);
  return fmt::format("{} {}", option, text.substr(0, text.find(':')));
}

}  // namespace

std::vector<SharedField> FieldsSet(std::string_view option, std::string_view text) {
  if (option == "--draft") return FieldsOfDraft(text);
  if (option == "--kv-type" && CompressedKvType(text).has_value()) {
    return {SharedField::kT0, SharedField::kT1, SharedField::kT2};
  }
  std::vector<SharedField> fields;
  for (const auto& [name, field] : kSharedFields) {
    if (name == option) fields.push_back(field);
  }
  return fields;
}

Status GivenOptions::Add(std::string_view option, std::string_view text) {
  const std::vector<SharedField> fields = FieldsSet(option, text);
  for (const SharedField field : fields) {
    const auto other = options_.find(field);
    if (other == options_.end()) continue;
    // Two values of --t2 look like two formats, of which T2 has one.
    if (other->second.name == option && option == "--t2") {
      return InvalidArgument("--t2 is given twice: T2 holds one choice of rows in one format");
    }
    if (other->second.name == option) continue;
    return InvalidArgument(fmt::format("{} and {} both set {}; give one", other->second.shown,
                                       Shown(option, text), Description(field)));
  }
  std::erase_if(options_, [&](const auto& entry) { return entry.second.name == option; });
  for (const SharedField field : fields) {
    options_[field] = {.name = std::string(option), .shown = Shown(option, text)};
  }
  return OkStatus();
}

bool GivenOptions::Sets(const std::vector<SharedField>& fields) const {
  return std::ranges::any_of(fields, [&](SharedField field) { return options_.contains(field); });
}

std::string_view GivenOptions::OptionThatSet(SharedField field) const {
  const auto found = options_.find(field);
  return found == options_.end() ? std::string_view() : found->second.shown;
}

}  // namespace ebb::cli
