// Records which options were given, to find two that set the same field.
#ifndef EBB_APPS_OPTIONS_GIVEN_OPTIONS_H_
#define EBB_APPS_OPTIONS_GIVEN_OPTIONS_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb::cli {

// SharedField names a field that several options set, such as the format of T2's rows, which both
// --t2 and --kv-type q4 set. Options that set the same field exclude each other.
enum class SharedField {
  kModel,
  kChatTemplate,
  kPrompt,
  kT0,
  kT1,
  kT1Read,
  kT2,
  kPolicy,
  kBudget,
  kSinks,
  kWindow,
  kInterval,
};

// Returns the shared fields that an option ("--kv-type") sets with this value.
[[nodiscard]] std::vector<SharedField> FieldsSet(std::string_view option, std::string_view text);

// GivenOptions records, for one source of options such as the command line, which option set each
// shared field.
class GivenOptions {
 public:
  // Records the shared fields that the option sets with this value; if an option is given twice,
  // its last value counts. Errors: another option set one of these fields; nothing is recorded
  // then.
  [[nodiscard]] Status Add(std::string_view option, std::string_view text);
  // Returns whether a recorded option sets one of `fields`.
  [[nodiscard]] bool Sets(const std::vector<SharedField>& fields) const;
  // Returns the option that set the field, as messages name it ("--kv-type q4"), or an empty text.
  [[nodiscard]] std::string_view OptionThatSet(SharedField field) const;

 private:
  struct Option {
    std::string name;
    std::string shown;
  };
  std::map<SharedField, Option> options_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_GIVEN_OPTIONS_H_
