#include "src/model/schema/schema_formats.h"

#include <algorithm>
#include <iterator>

namespace ebb {
namespace {

// Covers the years 0001 to 9999, with their leap days.
#define EBB_DATE                                                                  \
  "(([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-"                        \
  "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|" \
  "02-(0[1-9]|1[0-9]|2[0-8]))|"                                                   \
  "([0-9]{2}(0[48]|[2468][048]|[13579][26])|"                                     \
  "(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define EBB_TIME                                             \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?" \
  "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define EBB_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
#define EBB_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

struct Format {
  std::string_view name;
  std::string_view pattern;
  bool is_all = false;  // the pattern admits all strings of the format
};

constexpr Format kFormats[] = {
    {"date", "^" EBB_DATE "$", true},
    {"time", "^" EBB_TIME "$", true},
    {"date-time", "^" EBB_DATE "T" EBB_TIME "$", true},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$", true},
    {"ipv4", "^" EBB_BYTE "\\." EBB_BYTE "\\." EBB_BYTE "\\." EBB_BYTE "$", true},
    {"email",
     "^[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,20}){0,2}@(" EBB_LABEL "\\.){1,3}[a-z]{2,6}$"},
    {"hostname", "^" EBB_LABEL "(\\." EBB_LABEL "){0,4}$"},
    {"uri",
     "^https?://" EBB_LABEL "(\\." EBB_LABEL "){0,4}(:[1-9][0-9]{1,3})?(/[A-Za-z0-9_.~-]{0,60})*"
     "(\\?[A-Za-z0-9_.~&=-]*)?(#[A-Za-z0-9_.~-]*)?$"},
};

#undef EBB_DATE
#undef EBB_TIME
#undef EBB_LABEL
#undef EBB_BYTE

constexpr std::string_view kWithoutPattern[] = {
    "duration", "idn-email",     "idn-hostname", "ipv6",         "uri-reference",
    "iri",      "iri-reference", "uri-template", "json-pointer", "relative-json-pointer",
    "regex"};

const Format* FormatOf(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &Format::name);
  return found == std::end(kFormats) ? nullptr : &*found;
}

}  // namespace

bool IsAssertedFormat(std::string_view format) {
  return FormatOf(format) != nullptr ||
         std::ranges::find(kWithoutPattern, format) != std::end(kWithoutPattern);
}

std::string_view FormatPattern(std::string_view format, SchemaUse use) {
  const Format* const found = FormatOf(format);
  if (found == nullptr || (use == SchemaUse::kTool && !found->is_all)) return "";
  return found->pattern;
}

}  // namespace ebb
