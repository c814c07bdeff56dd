// AgentServer runs `ebb serve` as a process, with a model of random weights whose template supports
// tools.
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
  // Starts a server with a context of 131,072 tokens; each token takes 128 bytes of T0.
  explicit AgentServer(const std::vector<std::string>& options);

  [[nodiscard]] uint16_t port() const { return port_; }  // 0: the server did not start
  [[nodiscard]] bool HasEnded() { return process_->HasEnded(); }
  // Returns the process's anonymous memory, in RAM and in swap.
  [[nodiscard]] size_t AnonymousBytes() const;
  // Returns the value of a metric without labels; -1 if there is none.
  [[nodiscard]] double Metric(const std::string& name) const;

 private:
  const TempFolder folder_;
  std::unique_ptr<ServerProcess> process_;
  uint16_t port_ = 0;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_AGENTS_AGENT_SERVER_H_
