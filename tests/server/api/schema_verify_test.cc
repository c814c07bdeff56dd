// Sends the valid and invalid requests that schemathesis makes from docs/user/openapi.yaml: no
// answer may be a server error, and each must match the file. EBB_SCHEMATHESIS names the program;
// else it is installed from PyPI if that can be reached.
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/common/terminal/subprocess.h"
#include "tests/server/server_fixture.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

class SchemaTest : public ServerTest {
 protected:
  static bool Succeeds(const std::vector<std::string>& arguments) {
    const auto end = cli::RunProcess(arguments, cli::ProcessOutput::kDiscard);
    return end.ok() && end->exit_code == 0;
  }
  // Returns the program; empty if it cannot be installed.
  std::string FindProgram() {
    if (const char* named = std::getenv("EBB_SCHEMATHESIS")) return named;
    const std::string folder = folder_.File("venv");
    const bool is_there =
        Succeeds({"python3", "-m", "venv", folder}) &&
        Succeeds({folder + "/bin/pip", "install", "--quiet", "schemathesis==4.32.5"});
    return is_there ? folder + "/bin/schemathesis" : "";
  }

  const TempFolder folder_;
};

TEST_F(SchemaTest, NothingThatIsSentMakesAServersError) {
  const std::string program = FindProgram();
  if (program.empty())
    EBB_SKIP_WITHOUT("python") << "schemathesis is not here, and PyPI cannot be reached";
  ServerOptions options = Options();
  // Keeps answers short, since few requests limit their length.
  options.defaults.generate.max_tokens = 8;
  options.defaults.session.context = 512;
  // Sessions leave memory at once, so that all memory is free at the end.
  options.sessions =
      store::StoreUrl{.kind = store::StoreUrl::Kind::kFile, .folder = folder_.File("sessions")};
  options.keeping.idle = 0;
  Start(options);
  const auto end = cli::RunProcess(
      {program, "run", EBB_SOURCE_DIR "/docs/user/openapi.yaml", "--url",
       fmt::format("http://{}", server_->addresses().front()), "--checks",
       "not_a_server_error,status_code_conformance,content_type_conformance,"
       "response_headers_conformance,response_schema_conformance,unsupported_method",
       "--max-examples", "60", "--seed", "1", "--generation-database", "none", "--request-timeout",
       // This endpoint's stream never ends.
       "60", "--exclude-path", "/v1/ebb/events", "--suppress-health-check", "all",
       "--continue-on-failure"},
      cli::ProcessOutput::kKeepBoth);
  ASSERT_TRUE(end.ok()) << end.status().ToString();
  EXPECT_EQ(end->exit_code, 0) << end->output;
  Await([](const Figures& f) {
    return f.waiting + f.reading + f.decoding + f.parked == 0 && f.arenas[0].used_bytes == 0;
  });
}

}  // namespace
}  // namespace ebb::server
