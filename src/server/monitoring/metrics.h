// Formats the engine's figures for Prometheus (exposition format 0.0.4). Reading them resets
// nothing.
#ifndef EBB_SERVER_MONITORING_METRICS_H_
#define EBB_SERVER_MONITORING_METRICS_H_

#include <cstddef>
#include <string>

#include "src/server/engine/figures.h"
#include "src/server/monitoring/metrics_alias.h"

namespace ebb::server {

[[nodiscard]] std::string MetricsText(const Figures& figures, size_t num_connections,
                                      MetricsAlias alias);

}  // namespace ebb::server

#endif  // EBB_SERVER_MONITORING_METRICS_H_
