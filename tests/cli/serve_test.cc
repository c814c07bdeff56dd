// `ebb serve` as a process: what it prints and how it ends. What it answers: tests/server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/ebb/commands.h"
#include "tests/cli/program.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Listens on a port of 127.0.0.1.
class PortHolder {
 public:
  PortHolder() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    EXPECT_EQ(bind(socket_, address, size), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    EXPECT_EQ(getsockname(socket_, address, &size), 0);
  }
  ~PortHolder() { close(socket_); }
  PortHolder(const PortHolder&) = delete;
  PortHolder& operator=(const PortHolder&) = delete;
  [[nodiscard]] int port() const { return ntohs(address_.sin_port); }

 private:
  const int socket_;
  sockaddr_in address_ = {};
};

TEST(ServeTest, SaysWhereItIsAndWhetherAnswersDependOnOtherRequests) {
  const ProgramEnd end =
      RunEbb({.arguments = Words("serve -m pebble --port 0 --threads 1"), .interrupt_after = 10});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.out, MatchesRegex("ebb: pebble at http://127\\.0\\.0\\.1:[0-9]+\n"));
  EXPECT_EQ(end.err,
            "ebb: the bits of an answer depend, by rounding, on concurrent requests: this "
            "processor multiplies weights of type f16 differently in batches\n");
}

TEST(ServeTest, OptionsThatCannotBeServedEndItAtOnce) {
  ProgramEnd end = RunEbb("serve -m pebble --port 0 --t0 8MiB --t1 none --evict caps");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err,
              HasSubstr("--evict caps: which rows are evicted would depend on other requests"));
  end = RunEbb("serve -m pebble --port 0 --t0 8MiB --t1-read select");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err,
              HasSubstr("--t1-read: reading a part of the rows in a server takes T0 as a share"));
  end = RunEbb("serve -m pebble --host no.such.host.invalid");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("cannot resolve the address \"no.such.host.invalid\""));
  end = RunEbb("serve -m pebble --port 70000");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("from 0 to 65535"));
  end = RunEbb("serve -m pebble --prefix-cache much");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--prefix-cache"));
  EXPECT_THAT(end.err, HasSubstr("\"much\""));
  end = RunEbb("serve -m pebble --prefix-store 1GiB");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--prefix-store: expected --sessions with it, found none"));
  end = RunEbb("serve -m pebble --sessions file:x --prefix-cache off --prefix-store 1GiB");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--prefix-store: expected a --prefix-cache with it, found off"));
  end = RunEbb("serve -m pebble --sessions nowhere");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("expected file:FOLDER, redis://"));
  end = RunEbb("serve -m pebble --port 0 --sessions redis+unix:/no/such/socket");
  EXPECT_NE(end.exit_code, 0);
  EXPECT_THAT(end.err, HasSubstr("/no/such/socket: cannot reach the session store"));
  EXPECT_EQ(end.out, "");
}

TEST(ServeTest, OptionsComeFromAFileToo) {
  const TempFolder folder;
  const std::string file = folder.File("serve.toml");
  std::ofstream(file) << "model = 'pebble'\nport = 70000\n";
  ProgramEnd end = RunEbb({.arguments = {"serve", "--config", file}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_EQ(end.err, "ebb: " + file + ":2: port: expected an integer from 0 to 65535, found " +
                         "\"70000\"\n");
  std::ofstream(file) << "model = 'pebble'\nport = 1\nthreads = 1\nhost = '127.0.0.2'\n";
  end = RunEbb({.arguments = {"serve", "--port", "0", "--config", file}, .interrupt_after = 10});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, MatchesRegex("ebb: pebble at http://127\\.0\\.0\\.2:[0-9]+\n"));
  end = RunEbb({.arguments = {"serve", "--config", folder.File("none")}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--config: cannot read"));
}

TEST(ServeTest, TheCommandLineTurnsAFlagOfTheFileOff) {
  const TempFolder folder;
  const std::string file = folder.File("serve.toml");
  // The flag ends the server without --lossless, so that its effect shows.
  std::ofstream(file) << "model = 'pebble'\nport = 0\nthreads = 1\nno-draft-lookup = true\n";
  ProgramEnd end = RunEbb({.arguments = {"serve", "--config", file}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--no-draft-lookup goes with --lossless"));
  end = RunEbb(
      {.arguments = {"serve", "--config", file, "--no-draft-lookup=false"}, .interrupt_after = 10});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  // The last one holds.
  const std::vector<std::string> on_and_off = {"serve", "--config", file, "--no-draft-lookup",
                                               "--no-draft-lookup=false"};
  EXPECT_EQ(RunEbb({.arguments = on_and_off, .interrupt_after = 10}).exit_code, 0);
  end = RunEbb("serve -m pebble --no-draft-lookup=false --no-draft-lookup=true");
  EXPECT_THAT(end.err, HasSubstr("--no-draft-lookup goes with --lossless"));
}

TEST(ServeTest, AFlagTakesWordsForTrueAndFalseAlone) {
  for (const std::string value : {"true", "1", "on", "Yes"}) {
    const ProgramEnd end = RunEbb("serve -m pebble --no-draft-lookup=" + value);
    EXPECT_EQ(end.exit_code, 2) << value;
    EXPECT_THAT(end.err, HasSubstr("--no-draft-lookup goes with --lossless")) << value;
  }
  for (const std::string value : {"false", "0", "off", "no"}) {
    const ProgramEnd end = RunEbb("serve -m /no/such.gguf --no-draft-lookup=" + value);
    EXPECT_THAT(end.err, HasSubstr("/no/such.gguf: cannot open")) << value;
  }
  for (const std::string value : {"perhaps", "2", "9", "10", "-1", "-", "+", "t", "n", "enable"}) {
    const ProgramEnd end = RunEbb("serve -m /no/such.gguf --no-draft-lookup=" + value);
    EXPECT_EQ(end.exit_code, 2) << value;
    EXPECT_THAT(end.err,
                HasSubstr("--no-draft-lookup: expected true or false, found \"" + value + "\""));
  }
}

TEST(ServeTest, EveryFlagTakesFalse) {
  int num_flags = 0;
  for (const cli::OptionRow& row : cli::EbbProgram().options) {
    const auto& groups = cli::FindCommand(cli::EbbProgram(), "serve")->groups;
    if (!row.value.empty() || std::ranges::count(groups, row.group) == 0) continue;
    ++num_flags;
    const std::string name = row.names.substr(row.names.rfind("--"));
    // Only what can be parsed reaches the model.
    const ProgramEnd end = RunEbb("serve -m /no/such.gguf " + name + "=false");
    EXPECT_EQ(end.exit_code, 2) << name;
    EXPECT_THAT(end.err, HasSubstr("/no/such.gguf: cannot open")) << name;
  }
  EXPECT_GT(num_flags, 4);
}

// systemd restarts a server that ends with 1 (RestartPreventExitStatus=2).
TEST(ServeTest, EndsWithTwoIfTheSameStartFailsAgain) {
  const TempFolder folder;
  const std::string empty = folder.File("empty.gguf"), text = folder.File("text.gguf");
  std::ofstream(empty).close();
  std::ofstream(text) << "no model";
  const std::pair<std::string, const char*> cases[] = {
      {"-m /no/such.gguf", "/no/such.gguf: cannot open: No such file"},
      {"-m " + folder.File("."), "expected a regular file, found a folder"},
      {"-m " + empty, "the file is empty"},
      {"-m " + text, "text.gguf"},
      {"-m no-such-name", "found no file of that name"},
      {"-m pebble --api-keys /no/such/keys", "cannot open /no/such/keys"},
      {"-m pebble --access-log /no/such/log", "/no/such/log cannot be opened"},
      {"-m pebble --access-log " + folder.File("."), "cannot be opened: Is a directory"},
      {"-m pebble --sessions file:/proc/no/such", "/proc/no/such"},
      {"-m pebble --t0 20% --t1 file:/no/such", "/no/such"},
      {"-m pebble --host unix:/no/such/socket", "cannot listen on /no/such/socket"},
      {"-m pebble --host unix:" + text, "text.gguf: something that is no socket is there"},
      {"-m pebble --host unix:" + folder.File("."), "something that is no socket is there"},
      {"-m pebble --host no.such.host.invalid", "cannot resolve the address"},
  };
  for (const auto& [words, message] : cases) {
    const ProgramEnd end = RunEbb("serve --port 0 --threads 1 " + words);
    EXPECT_EQ(end.exit_code, 2) << words << ": " << end.err;
    EXPECT_THAT(end.err, HasSubstr(message)) << words;
  }
}

// Another server may end, and an address may come with a network.
TEST(ServeTest, EndsWithOneIfALaterStartMaySucceed) {
  const PortHolder holder;
  ProgramEnd end = RunEbb(fmt::format("serve -m pebble --threads 1 --port {}", holder.port()));
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("Address already in use"));
  end = RunEbb("serve -m pebble --threads 1 --port 0 --host 192.0.2.1");
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("Cannot assign requested address"));
}

TEST(ServeTest, ANewKeyComesWithTheNextStepAndTheServerSaysThatItIsNeeded) {
  const TempFolder folder;
  const std::string keys = folder.File("keys");
  ProgramEnd end = RunEbb("serve --api-keys " + keys + " --new-key phone");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, MatchesRegex("ebb-[A-Za-z0-9_-]+\n"));
  EXPECT_THAT(end.err, HasSubstr("\n  ebb serve --host 0.0.0.0 --api-keys " + keys + "\n"));
  const ProgramRun serve = {
      .arguments =
          Words("serve -m pebble --port 0 --threads 1 --dashboard figures --api-keys " + keys),
      .interrupt_after = 10};
  end = RunEbb(serve);
  EXPECT_THAT(end.err, HasSubstr("ebb: requests need the API key of " + keys + "\n"));
  EXPECT_THAT(end.err, HasSubstr("the dashboard needs: --new-key NAME --admin\n"));
  ASSERT_EQ(RunEbb("serve --admin --api-keys " + keys + " --new-key boss").exit_code, 0);
  end = RunEbb(serve);
  EXPECT_THAT(end.err, HasSubstr("ebb: requests need one of the 2 API keys of " + keys + "\n"));
  EXPECT_THAT(end.err, testing::Not(HasSubstr("the dashboard needs")));
  EXPECT_EQ(RunEbb("serve -m pebble --admin").exit_code, 2);
}

TEST(ServeTest, MemoryIsAnsweredByTheServersOwnLimits) {
  const ProgramEnd end = RunEbb("serve -m pebble --memory 1GiB");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--kv-cap SIZE, or --t0 SIZE --t1 file"));
}

TEST(ServeTest, MalformedOriginsAndNamesEndItAtOnce) {
  for (const char* words :
       {"--cors https://a.example,https://b.example", "--cors https://*.example.org",
        "--cors example.org", "--cors https://example.org/"}) {
    const ProgramEnd end = RunEbb(std::string("serve -m pebble ") + words);
    EXPECT_EQ(end.exit_code, 2) << words;
    EXPECT_THAT(end.err, HasSubstr("--cors: expected an origin as browsers send it")) << words;
  }
  const ProgramEnd end = RunEbb("serve -m pebble --allow-host https://example.org");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--allow-host: expected the name of a host"));
}

TEST(ServeTest, MalformedVariablesOfSocketsEndIt) {
  ProgramEnd end = RunEbb({.arguments = Words("serve -m pebble --port 0"),
                           .environment = {{"LISTEN_FDS", "abc"}, {"LISTEN_PID", "1"}}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_EQ(end.err,
            "ebb: the environment variable LISTEN_FDS: expected a number from 1 to 64, found "
            "\"abc\"\n");
  end = RunEbb({.arguments = Words("serve -m pebble --port 0 --threads 1"),
                .environment = {{"LISTEN_FDS", "1"}, {"LISTEN_PID", "1"}},
                .interrupt_after = 10});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.out, MatchesRegex("ebb: pebble at http://127\\.0\\.0\\.1:[0-9]+\n"));
  EXPECT_THAT(end.err, HasSubstr("ebb: LISTEN_FDS is ignored: LISTEN_PID says that it is for "
                                 "process 1, and this is process "));
}

}  // namespace
}  // namespace ebb
