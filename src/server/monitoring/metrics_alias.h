#ifndef EBB_SERVER_MONITORING_METRICS_ALIAS_H_
#define EBB_SERVER_MONITORING_METRICS_ALIAS_H_

namespace ebb::server {

// MetricsAlias selects additional names under which some figures are exported. kVllm: vLLM's names
// of the few figures that routers and autoscalers read. kLlamaCpp: llama-server's names.
enum class MetricsAlias { kNone, kVllm, kLlamaCpp };

}  // namespace ebb::server

#endif  // EBB_SERVER_MONITORING_METRICS_ALIAS_H_
