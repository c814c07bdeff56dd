#ifndef EBB_SERVER_MONITORING_METRICS_ALIAS_H_
#define EBB_SERVER_MONITORING_METRICS_ALIAS_H_

namespace ebb::server {

// Other names for some of ebb's figures. "vllm": the few that routers and autoscalers read.
enum class MetricsAlias { kNone, kVllm };

}  // namespace ebb::server

#endif  // EBB_SERVER_MONITORING_METRICS_ALIAS_H_
