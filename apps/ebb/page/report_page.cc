#include "apps/ebb/page/report_page.h"

#include <string_view>

namespace ebb::cli {

// Made by the build out of files; see cmake/targets.cmake.
extern const std::string_view kProfilePage;
extern const std::string_view kEvalPage;
extern const std::string_view kChartLibrary;
extern const std::string_view kReportScript;
extern const std::string_view kReportStyle;

namespace {

// A browser ends a <script> at the first "</script>", even inside a string.
std::string ScriptText(const nlohmann::ordered_json& record) {
  const std::string json =
      record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string text;
  for (const char c : json) text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return text;
}

void Fill(std::string_view place, std::string_view text, std::string* page) {
  page->replace(page->find(place), place.size(), text);
}

std::string Page(std::string_view text, const nlohmann::ordered_json& data) {
  std::string page(text);
  Fill("@EBB_STYLE@", kReportStyle, &page);
  Fill("@EBB_SCRIPT@", kReportScript, &page);
  Fill("@EBB_CHART_LIBRARY@", kChartLibrary, &page);
  Fill("@EBB_DATA@", ScriptText(data), &page);
  return page;
}

}  // namespace

std::string ProfilePage(const nlohmann::ordered_json& record) { return Page(kProfilePage, record); }

std::string EvalPage(const nlohmann::ordered_json& manifest,
                     const nlohmann::ordered_json& summary) {
  return Page(kEvalPage, {{"run", manifest}, {"settings", summary}});
}

}  // namespace ebb::cli
