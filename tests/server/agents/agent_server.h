// `ebb serve` as a process of its own, with a model of random weights whose template takes tools.
#ifndef EBB_TESTS_SERVER_AGENTS_AGENT_SERVER_H_
#define EBB_TESTS_SERVER_AGENTS_AGENT_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/server_process.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {

class AgentServer {
 public:
  // A context of 131,072 tokens, of which each takes 128 bytes of T0.
  explicit AgentServer(const std::vector<std::string>& options);

  [[nodiscard]] uint16_t port() const { return port_; }  // 0: it did not start
  [[nodiscard]] bool HasEnded() { return process_->HasEnded(); }
  // The memory that no file backs, in RAM and in swap.
  [[nodiscard]] size_t AnonymousBytes() const;
  // The value of a metric that has no labels; -1: there is none.
  [[nodiscard]] double Metric(const std::string& name) const;

 private:
  const TempFolder folder_;
  std::unique_ptr<ServerProcess> process_;
  uint16_t port_ = 0;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_AGENTS_AGENT_SERVER_H_
