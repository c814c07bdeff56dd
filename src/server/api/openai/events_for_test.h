// Makes updates of a job, and reads named events.
#ifndef EBB_SERVER_API_OPENAI_EVENTS_FOR_TEST_H_
#define EBB_SERVER_API_OPENAI_EVENTS_FOR_TEST_H_

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/server/api/base/api_error.h"
#include "src/server/engine/job.h"

namespace ebb::server {

inline JobUpdate Said(TextPart part, std::string text) {
  return {.pieces = {{part, std::move(text)}}};
}

inline JobEnd Ended(FinishReason finish) {
  return {.finish = finish, .prompt_tokens = 5, .generated_tokens = 3, .thought_tokens = 2};
}

// Returns the data of each event, and checks its name.
inline std::vector<Json> NamedEvents(const std::string& text) {
  std::vector<Json> events;
  std::istringstream lines(text);
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("event: ")) name = line.substr(7);
    if (!line.starts_with("data: ")) continue;
    events.push_back(Json::parse(line.substr(6)));
    EXPECT_EQ(events.back()["type"], name);
  }
  return events;
}

inline std::vector<std::string> Types(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event["type"]);
  return types;
}

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_EVENTS_FOR_TEST_H_
