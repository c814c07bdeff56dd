#ifndef EBB_SERVER_MONITORING_METRICS_ALIAS_H_
#define EBB_SERVER_MONITORING_METRICS_ALIAS_H_

namespace ebb::server {

// Other names for some of ebb's figures. kVllm: the few that routers and autoscalers read.
// kLlamaCpp: those of llama-server.
enum class MetricsAlias { kNone, kVllm, kLlamaCpp };

}  // namespace ebb::server

#endif  // EBB_SERVER_MONITORING_METRICS_ALIAS_H_
