#include "tests/server/agents/agent_server.h"

#include <fstream>

#include <fmt/format.h>

#include "tests/server/client.h"
#include "tests/server/tools_model.h"
#include "tests/support/expect_ok.h"

namespace ebb::server {

AgentServer::AgentServer(const std::vector<std::string>& options) {
  const std::string model = folder_.File("agents.gguf");
  ExpectOk(WriteModelWithTools({.num_layers = 1,
                                .embed_dim = 64,
                                .num_q_heads = 1,
                                .num_kv_heads = 1,
                                .head_dim = 32,
                                .feed_forward_dim = 128,
                                .num_tokens = 18'600,
                                .context = 131'072},
                               model));
  std::vector<std::string> arguments = {EBB_BINARY_PATH, "serve", "-m",        model,
                                        "--port",        "0",     "--threads", "1"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  process_ = std::make_unique<ServerProcess>(arguments);
  const std::string line = process_->ReadLine();
  const size_t colon = line.rfind(':');
  EXPECT_NE(colon, std::string::npos) << line;
  if (colon != std::string::npos) {
    port_ = static_cast<uint16_t>(std::stoi(line.substr(colon + 1)));
  }
}

size_t AgentServer::AnonymousBytes() const {
  std::ifstream status(fmt::format("/proc/{}/status", process_->pid()));
  size_t kib = 0;
  for (std::string name; status >> name;) {
    size_t value = 0;
    if (name == "RssAnon:" || name == "VmSwap:") status >> value;
    kib += value;
  }
  return kib << 10;
}

double AgentServer::Metric(const std::string& name) const {
  const std::string text = Client(port_).Get("/metrics").body;
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
}

}  // namespace ebb::server
