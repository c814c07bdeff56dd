// Tests nginx with TLS in front of a server, with the configuration of examples/proxy. The client
// is Python's, which supports TLS.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>

#include "apps/common/terminal/subprocess.h"
#include "tests/server/server_fixture.h"
#include "tests/server/server_process.h"
#include "tests/support/free_port.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// kClient is a client that prints what it found. Arguments: port, certificate, action, question.
constexpr const char* kClient = R"py(
import http.client, json, ssl, sys, time
port, certificate, what, question = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
trust = ssl.create_default_context(cafile=certificate)
def connect():
    return http.client.HTTPSConnection("localhost", port, context=trust, timeout=120)
def ask(connection, **more):
    body = {"messages": [{"role": "user", "content": question}], **more}
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    return connection.getresponse()
connection = connect()
if what == "whole":
    answer = ask(connection, ebb={"logits_hash": True}, max_tokens=100)
    text = answer.read()
    assert answer.status == 200, (answer.status, text)
    print(json.loads(text)["ebb"]["logits_hash"], answer.headers["X-Request-Id"])
elif what == "stream":
    # The answer does not end by itself: whatever comes has passed the proxy meanwhile.
    answer = ask(connection, stream=True, ignore_eos=True, max_tokens=1000000)
    events = 0
    while events < 20:
        line = answer.readline()
        assert line, "the stream ended"
        events += line.startswith(b"data: ")
    print("events", answer.headers["Content-Type"])
elif what == "large":
    connection.request("POST", "/tokenize", b" " * (9 << 20), {"Content-Type": "application/json"})
    print(connection.getresponse().status)
elif what == "metrics":
    connection.request("GET", "/metrics")
    print(connection.getresponse().status)
)py";

// Replaces all occurrences of `from`, also in comments.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

class ProxyTest : public ServerTest {
 protected:
  void SetUp() override {
    for (const char* program : {"nginx", "openssl", "python3"}) {
      if (!IsInstalled(program)) EBB_SKIP_WITHOUT("nginx") << program << " is not installed";
    }
    ServerOptions options = Options();
    options.host = "unix:" + folder_.File("ebb.sock");
    Start(options);
    MakeCertificate();
    BeginNginx();
  }
  void TearDown() override {
    if (nginx_ == nullptr) return;
    nginx_->Signal(SIGTERM);
    (void)nginx_->Wait();
  }

  void MakeCertificate() {
    const auto made =
        cli::RunProcess({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                         "-keyout", folder_.File("key"), "-out", folder_.File("certificate")},
                        cli::ProcessOutput::kKeepBoth);
    ASSERT_TRUE(made.ok() && made->exit_code == 0) << made->output;
  }
  void BeginNginx() {
    std::ostringstream example;
    example << std::ifstream(EBB_SOURCE_DIR "/examples/proxy/nginx.conf").rdbuf();
    std::string text = example.str();
    text = Replaced(text, "unix:/run/ebb/ebb.sock", server_->addresses().front());
    text = Replaced(text, "/etc/ssl/certs/ebb.pem", folder_.File("certificate"));
    text = Replaced(text, "/etc/ssl/private/ebb.key", folder_.File("key"));
    port_ = FreePort();
    text = Replaced(text, "listen 443 ssl", fmt::format("listen 127.0.0.1:{} ssl", port_));
    std::string places;
    for (const char* place : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}) {
      places += fmt::format("{}_temp_path {};\n", place, folder_.File(place));
    }
    std::ofstream(folder_.File("nginx.conf")) << fmt::format(
        "{}daemon off;\npid {};\nerror_log stderr notice;\nevents {{}}\n"
        "http {{\naccess_log {};\n{}{}}}\n",
        // The folder's files belong to this user.
        geteuid() == 0 ? "user root;\n" : "", folder_.File("pid"), folder_.File("access.log"),
        places, text);
    nginx_ = std::make_unique<ServerProcess>(std::vector<std::string>{
        "nginx", "-c", folder_.File("nginx.conf"), "-p", folder_.File("")});
    std::string lines;
    for (std::string line = nginx_->ReadLine(); !line.empty(); line = nginx_->ReadLine()) {
      if (line.find("start worker process ") != std::string::npos) return;
      lines += line + "\n";
    }
    FAIL() << lines;
  }
  std::string Ask(const std::string& what) {
    const auto end = cli::RunProcess({"python3", "-c", kClient, std::to_string(port_),
                                      folder_.File("certificate"), what, Question(1)},
                                     cli::ProcessOutput::kKeepBoth);
    EXPECT_TRUE(end.ok());
    EXPECT_EQ(end->exit_code, 0) << end->output;
    return end->output;
  }

  const TempFolder folder_;
  uint16_t port_ = 0;
  std::unique_ptr<ServerProcess> nginx_;
};

TEST_F(ProxyTest, AnAnswerIsThatOfTheServerItself) {
  const Solo solo = RunAlone(1, {.max_tokens = 100});
  EXPECT_THAT(Ask("whole"), StartsWith(solo.hash + " "));
}

TEST_F(ProxyTest, AStreamPassesTokenByTokenAndEndsWithItsClient) {
  EXPECT_THAT(Ask("stream"), StartsWith("events text/event-stream"));
  Await([](const Figures& f) { return f.ended.contains("cancelled") && f.decoding == 0; });
  EXPECT_FALSE(server_->figures().ended.contains("context"));
}

TEST_F(ProxyTest, WhatIsTooLargeOrNotForAllStaysOutside) {
  EXPECT_THAT(Ask("large"), StartsWith("413"));
  EXPECT_THAT(Ask("metrics"), StartsWith("403"));
}

}  // namespace
}  // namespace ebb::server
