// Models by name through the program: `ebb pull`, `list` and `rm`, and -hf, with a hub of the
// test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/child_process.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/hub/fake_hub.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class HubTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(tiny_.path(), std::ios::binary);
    bytes_ = {std::istreambuf_iterator<char>(file), {}};
    hub_.repos["tide/Tide-GGUF"].files = {{"Tide-Q8_0.gguf", FakeGguf(9000)},
                                          {"Tide-Q4_K_M.gguf", bytes_}};
    hub_.ollama = {{"library/tide:1b", bytes_}};
  }
  [[nodiscard]] ProgramRun RunOf(const std::string& arguments) const {
    return {.arguments = Words(arguments),
            .environment = {{"HF_ENDPOINT", hub_.url()},
                            {"HF_HOME", folder_.File("hf")},
                            {"HF_HUB_CACHE", ""},
                            {"HF_TOKEN", ""},
                            {"HF_HUB_OFFLINE", ""},
                            {"EBB_OLLAMA_REGISTRY", hub_.url()},
                            {"OLLAMA_MODELS", folder_.File("ollama")},
                            {"no_proxy", "127.0.0.1"},
                            {"XDG_CACHE_HOME", folder_.File("cache")}}};
  }
  [[nodiscard]] ProgramEnd Ebb(const std::string& arguments) const {
    return RunEbb(RunOf(arguments));
  }

  TinyModel tiny_;
  std::string bytes_;
  TempFolder folder_;
  FakeHub hub_;
};

TEST_F(HubTest, PullsAndTellsWhereTheModelIs) {
  ProgramEnd end = Ebb("pull hf:tide/Tide-GGUF");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, "");
  EXPECT_THAT(end.err, HasSubstr("fetching Tide-Q4_K_M.gguf ("));
  EXPECT_THAT(end.err, HasSubstr(" MB, 100 %\n"));
  EXPECT_THAT(end.err, HasSubstr("the model is at " + folder_.File("hf/hub/models--tide--Tide-")));
  end = Ebb("pull --quiet --json hf:tide/Tide-GGUF:q8_0 ollama:tide:1b");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.err, "");
  const auto record = nlohmann::json::parse(end.out.substr(0, end.out.find('\n')));
  EXPECT_EQ(record["name"], "hf:tide/Tide-GGUF:q8_0");
  EXPECT_EQ(record["there"], true);
  EXPECT_EQ(record["bytes"], 9000);
  EXPECT_EQ(record["source"], "hub");
}

TEST_F(HubTest, RunsAModelOfTheHubAndFetchesItOnce) {
  for (const char* model : {"-hf tide/Tide-GGUF", "-m hf:tide/Tide-GGUF:Q4_K_M",
                            "--hf-repo tide/Tide-GGUF/Tide-Q4_K_M.gguf", "-m ollama:tide:1b"}) {
    const std::string command = std::string("run --raw -n 2 -p tide --threads 1 ") + model;
    const ProgramEnd end = Ebb(command);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_NE(end.out, "");
    (void)hub_.hub().TakeRequests();
    const ProgramEnd again = Ebb(command);
    EXPECT_EQ(again.out, end.out);
    EXPECT_THAT(again.err, Not(HasSubstr("fetching")));
    EXPECT_EQ(hub_.hub().TakeRequests().size(), 0U) << model;
  }
}

TEST_F(HubTest, ServesItByTheNameThatWasTyped) {
  ProgramRun run = RunOf("serve -hf tide/Tide-GGUF --port 0 --threads 1");
  run.interrupt_after = 10;
  const ProgramEnd end = RunEbb(run);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("ebb: tide/Tide-GGUF at http://127.0.0.1:"));
}

TEST_F(HubTest, ListAndRemove) {
  ASSERT_EQ(Ebb("pull hf:tide/Tide-GGUF hf:tide/Tide-GGUF:Q8_0").exit_code, 0);
  ProgramEnd end = Ebb("list");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("hf:tide/Tide-GGUF:Q4_K_M      5 MB  Q4_K_M   llama\n"));
  EXPECT_THAT(end.out, HasSubstr("hf:tide/Tide-GGUF:Q8_0        0 MB  Q8_0"));
  end = Ebb("list --json");
  const auto record = nlohmann::json::parse(end.out.substr(0, end.out.find('\n')));
  EXPECT_EQ(record["name"], "hf:tide/Tide-GGUF:Q4_K_M");
  EXPECT_EQ(record["bytes"], bytes_.size());
  EXPECT_EQ(record["architecture"], "llama");
  EXPECT_EQ(record["files"], 1);
  end = Ebb("rm hf:tide/Tide-GGUF");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("stands for several models"));
  end = Ebb("rm hf:tide/Tide-GGUF:Q8_0");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("removed hf:tide/Tide-GGUF:Q8_0: 8.8 KiB\n"));
  end = Ebb("rm --json hf:tide/Tide-GGUF");
  EXPECT_EQ(nlohmann::json::parse(end.out)["bytes_freed"], bytes_.size());
  EXPECT_EQ(Ebb("list").out, "");
  end = Ebb("rm hf:tide/Tide-GGUF");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("hf:tide/Tide-GGUF is not in "));
  EXPECT_EQ(Ebb("rm").exit_code, 2);
}

TEST_F(HubTest, AMirroredModelIsListedAndRemoved) {
  const std::string path = folder_.File("cache/ebb/SmolLM2-135M-Instruct.Q4_1.gguf");
  fs::create_directories(fs::path(path).parent_path());
  fs::copy_file(tiny_.path(), path);
  EXPECT_THAT(Ebb("list").out, HasSubstr("smollm2-135m"));
  const ProgramEnd end = Ebb("rm smollm2-135m");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_FALSE(fs::exists(path));
}

// A header of a model on the hub gives the estimate of the whole file.
TEST_F(HubTest, FitReadsTheHeaderAlone) {
  const std::string fit = "fit --json --quiet --threads 1 --context 200 -m ";
  const auto whole = nlohmann::json::parse(Ebb(fit + tiny_.path()).out);
  for (const char* model : {"hf:tide/Tide-GGUF", "ollama:tide:1b"}) {
    const ProgramEnd end = Ebb(fit + model);
    ASSERT_EQ(end.exit_code, 0) << end.err;
    const auto header = nlohmann::json::parse(end.out);
    EXPECT_EQ(header["model"], whole["model"]);
    ASSERT_EQ(header["settings"].size(), whole["settings"].size());
    for (size_t i = 0; i < whole["settings"].size(); ++i) {
      auto of_header = header["settings"][i]["bytes"], of_whole = whole["settings"][i]["bytes"];
      EXPECT_GT(of_header["weights"], 0);
      of_header.erase("program");  // measured
      of_whole.erase("program");
      EXPECT_EQ(of_header, of_whole);
    }
  }
  EXPECT_EQ(Ebb("list").out, "");
  EXPECT_FALSE(fs::exists(folder_.File("hf")));
  // The second time the hub is asked for the model's revision alone.
  (void)hub_.cdn().TakeRequests();
  ProgramEnd end = Ebb("fit --threads 1 --context 200 -m hf:tide/Tide-GGUF");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, Not(HasSubstr("fetched")));
  EXPECT_EQ(hub_.cdn().TakeRequests().size(), 0U);
  EXPECT_TRUE(end.out.ends_with("\n\nebb chat --threads 1 --context 200 -m hf:tide/Tide-GGUF\n"))
      << end.out;
  // Another revision is another file.
  FakeRepo& repo = hub_.repos["tide/Tide-GGUF"];
  repo.commit = std::string(40, 'b');
  repo.files["Tide-Q4_K_M.gguf"] = bytes_ + "more";
  end = Ebb("fit --threads 1 --context 200 -m hf:tide/Tide-GGUF");
  EXPECT_THAT(end.err, HasSubstr("fetched the header of Tide-Q4_K_M.gguf"));
  end = Ebb("fit --measure -m hf:tide/Tide-GGUF");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("`ebb pull hf:tide/Tide-GGUF` fetches them"));
}

TEST_F(HubTest, AHeaderIsNoModel) {
  ASSERT_EQ(Ebb("fit --threads 1 --context 200 -m hf:tide/Tide-GGUF").exit_code, 0);
  std::string header;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.File("cache/ebb/headers"))) {
    if (entry.is_regular_file()) header = entry.path();
  }
  ASSERT_TRUE(header.ends_with("/Tide-Q4_K_M.gguf-header"));
  EXPECT_EQ(fs::file_size(header), bytes_.size());
  ProgramEnd end = Ebb("run --raw -n 1 -p x -m " + header);
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("found the metadata that `ebb fit` fetched"));
  // The model itself is fetched where it is needed, and then used.
  end = Ebb("run --raw -n 2 -p tide --threads 1 -hf tide/Tide-GGUF");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("fetching Tide-Q4_K_M.gguf"));
  (void)hub_.hub().TakeRequests();
  EXPECT_EQ(Ebb("fit --threads 1 --context 200 -m hf:tide/Tide-GGUF").exit_code, 0);
  EXPECT_EQ(hub_.hub().TakeRequests().size(), 0U);
}

TEST_F(HubTest, FitReadsTheHeadersOfAllPartsAndRefusesBadOnes) {
  auto edit = GgufEdit::Open(tiny_.path());
  ASSERT_TRUE(edit.ok());
  const auto first = edit->SaveInParts(folder_.File("Tide-BF16"), 2);
  ASSERT_TRUE(first.ok()) << first.status().message();
  FakeRepo& repo = hub_.repos["tide/Tide-GGUF"];
  for (const std::string name :
       {"Tide-BF16-00001-of-00002.gguf", "Tide-BF16-00002-of-00002.gguf"}) {
    std::ifstream file(folder_.File(name), std::ios::binary);
    repo.files["BF16/" + name] = {std::istreambuf_iterator<char>(file), {}};
  }
  const std::string fit = "fit --json --threads 1 --context 200 -m ";
  ProgramEnd end = Ebb(fit + "hf:tide/Tide-GGUF:BF16");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const auto parts = nlohmann::json::parse(end.out);
  const auto whole = nlohmann::json::parse(Ebb(fit + tiny_.path()).out);
  EXPECT_EQ(parts["settings"][0]["bytes"]["weights"], whole["settings"][0]["bytes"]["weights"]);
  // A file whose metadata ends too early, a name that the hub has not, and no hub.
  end = Ebb(fit + "hf:tide/Tide-GGUF:Q8_0");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("is no GGUF file"));
  end = Ebb(fit + "hf:tide/Tide-GGUF:Q2_K");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("it has BF16, Q4_K_M, Q8_0"));
  EXPECT_THAT(Ebb(fit + "hf:tide/None").err, HasSubstr("no repository hf:tide/None"));
  ProgramRun offline = RunOf(fit + "hf:tide/Tide-GGUF");
  offline.environment.emplace_back("HF_HUB_OFFLINE", "1");
  EXPECT_THAT(RunEbb(offline).err, HasSubstr("HF_HUB_OFFLINE forbids to ask the hub"));
}

TEST_F(HubTest, FitTakesItsOwnTableForListedModelsWithoutNetwork) {
  ProgramRun run = RunOf("fit -m hf:Qwen/Qwen3-8B-GGUF --memory 16GiB --context 8192");
  run.environment.emplace_back("HF_ENDPOINT", "http://no.such.host.invalid");
  ProgramEnd end = RunEbb(run);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("`ebb fit --list` which known ones would fit"));
  EXPECT_THAT(end.err, HasSubstr("the sizes below are those of ebb's own table"));
  EXPECT_THAT(end.out, HasSubstr("The gentlest that fits: full. To run it, after a download of 5.0 "
                                 "GB:\n\nebb chat -m hf:Qwen/Qwen3-8B-GGUF --memory 16GiB "
                                 "--context 8192\n"));
  run.arguments = Words("fit -m hf:no/such-model");
  end = RunEbb(run);
  EXPECT_NE(end.exit_code, 0);
  EXPECT_EQ(end.out, "");
  EXPECT_THAT(end.err, HasSubstr("without network, `ebb list` shows the models that are here"));
}

TEST_F(HubTest, FitListsWhatFitsWithoutARequest) {
  ProgramEnd end = Ebb("fit --list --memory 8GiB");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, ContainsRegex("hf:Qwen/Qwen3-8B-GGUF:Q4_K_M +[0-9.]+ GiB +full +[0-9]+\n"));
  EXPECT_THAT(end.out, ContainsRegex("hf:Qwen/Qwen3-32B-GGUF:Q4_K_M +[0-9.]+ GiB +no +-\n"));
  EXPECT_THAT(end.out, ContainsRegex("smollm2-135m +after `ebb pull` \\(0.1 GB\\)\n"));
  EXPECT_TRUE(
      end.out.ends_with("\n\nThe largest that fits, after a download of 5.0 GB:\n\n"
                        "ebb chat -m hf:Qwen/Qwen3-8B-GGUF:Q4_K_M --memory 8GiB "
                        "--context 8192\n"))
      << end.out;
  std::istringstream lines(end.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  end = Ebb("fit --list --json --memory 5GiB --context 32768");
  const auto record = nlohmann::json::parse(LastLine(end.out));
  EXPECT_EQ(record["model"], "hf:Qwen/Qwen3-32B-GGUF:Q4_K_M");
  EXPECT_EQ(record["fits"], false);
  EXPECT_THAT(record["why_not"].get<std::string>(),
              HasSubstr("no setting of the tiers fits 32768"));
  EXPECT_THAT(end.out, HasSubstr("\"setting\":\"--t1 none --t2 old:int"));
  EXPECT_EQ(hub_.hub().TakeRequests().size(), 0U);
  for (const char* more : {" -m pebble", " --device ggml-cpu", " --measure"}) {
    end = Ebb(std::string("fit --list") + more);
    EXPECT_EQ(end.exit_code, 2) << more;
    EXPECT_THAT(end.err, HasSubstr("--list")) << more;
  }
}

TEST_F(HubTest, TwoProcessesFetchOnce) {
  hub_.repos["tide/Tide-GGUF"].files["Tide-Q4_K_M.gguf"] = FakeGguf(5'000'000);
  std::vector<ProgramEnd> ends(2);
  std::vector<std::thread> threads;
  for (ProgramEnd& end : ends) {
    threads.emplace_back([&] { end = Ebb("pull hf:tide/Tide-GGUF"); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ProgramEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(hub_.cdn().TakeRequests().size(), 1U);
}

TEST_F(HubTest, AKilledFetchGoesOnInTheNextProcess) {
  hub_.tamper_cdn = [](const SeenRequest& request, ServerAnswer* answer) {
    if (request.Header("range").empty()) answer->stall_after = answer->body.size() / 2;
  };
  ProgramRun run = RunOf("pull hf:tide/Tide-GGUF");
  run.environment.emplace_back("HF_HUB_DOWNLOAD_TIMEOUT", "1");
  const ProgramEnd end = RunEbb(run);
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("trying again"));
  EXPECT_EQ(hub_.cdn().TakeRequests().size(), 2U);
}

TEST_F(HubTest, OverHttpsTheCertificateIsCheckedAndRedirectsStaySecure) {
  if (FindProgram("openssl").empty()) GTEST_SKIP() << "openssl is not there";
  fs::create_directories(folder_.File("tls"));
  ChildProcess server(
      {"python3", EBB_SOURCE_DIR "/tests/tools/https_server.py", folder_.File("tls")});
  const std::string url = "https://localhost:" + server.ReadLine();
  ProgramEnd end = Ebb("pull " + url + "/tide.gguf");
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("certificate"));
  const auto pull = [&](const std::string& file) {
    ProgramRun run = RunOf("pull " + url + file);
    run.environment.emplace_back("SSL_CERT_FILE", folder_.File("tls/cert.pem"));
    run.environment.emplace_back("no_proxy", "localhost");
    return RunEbb(run);
  };
  end = pull("/tide.gguf");
  EXPECT_EQ(end.exit_code, 0) << end.err;
  end = pull("/insecure.gguf");
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("redirects from https to http"));
}

TEST_F(HubTest, ErrorsSayWhatHelps) {
  ProgramEnd end = Ebb("run -hf tide/Tide-GGUF:Q5_K_M -p x");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_EQ(end.err,
            "ebb: hf:tide/Tide-GGUF has no file of the quantization Q5_K_M; it has Q4_K_M, Q8_0\n");
  end = Ebb("run -hf tide -p x");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--hf-repo: expected hf:ORG/REPO"));
  end = Ebb("pull --list hf:tide/Tide-GGUF");
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.out, HasSubstr("not there; `ebb pull hf:tide/Tide-GGUF` fetches it"));
}

}  // namespace
}  // namespace ebb
