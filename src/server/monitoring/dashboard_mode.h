#ifndef EBB_SERVER_MONITORING_DASHBOARD_MODE_H_
#define EBB_SERVER_MONITORING_DASHBOARD_MODE_H_

#include <cstdint>

namespace ebb::server {

// DashboardMode selects the data that the dashboard and its endpoints show to every client that can
// connect.
enum class DashboardMode : uint8_t {
  kOff,
  kFigures,  // memory, requests and tiers of their tokens; no text
  kText,     // also the text of prompts and answers
};

}  // namespace ebb::server

#endif  // EBB_SERVER_MONITORING_DASHBOARD_MODE_H_
