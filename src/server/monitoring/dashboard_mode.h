#ifndef EBB_SERVER_MONITORING_DASHBOARD_MODE_H_
#define EBB_SERVER_MONITORING_DASHBOARD_MODE_H_

#include <cstdint>

namespace ebb::server {

// The data that the dashboard and its endpoints show to every client that can connect.
enum class DashboardMode : uint8_t {
  kOff,
  kFigures,  // memory, requests and the tiers of their tokens, never a word of them
  kText,     // the text of prompts and answers too
};

}  // namespace ebb::server

#endif  // EBB_SERVER_MONITORING_DASHBOARD_MODE_H_
