// Tests models of a fake hub and a fake registry.
#include "apps/common/models/remote_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "apps/common/terminal/interrupt.h"
#include "tests/support/hub/fake_hub.h"
#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RemoteModelsTest : public testing::Test {
 protected:
  void SetUp() override {
    (void)InstallInterruptHandler();
    Set("HF_ENDPOINT", hub_.url());
    Set("HF_HOME", folder_.File("hf"));
    Set("HF_HUB_CACHE", "");
    Set("HF_TOKEN", "");
    Set("HF_TOKEN_PATH", "");
    Set("HF_HUB_OFFLINE", "");
    Set("XDG_CACHE_HOME", folder_.File("cache"));
    Set("OLLAMA_MODELS", folder_.File("ollama"));
    Set("EBB_OLLAMA_REGISTRY", hub_.url());
    Set("no_proxy", "127.0.0.1");
    FakeRepo& repo = hub_.repos["tide/Tide-GGUF"];
    repo.files = {{"README.md", "# Tide"},
                  {"Tide-Q4_K_M.gguf", FakeGguf(4000)},
                  {"Tide-Q8_0.gguf", FakeGguf(8000)},
                  {"BF16/Tide-BF16-00001-of-00002.gguf", FakeGguf(9000)},
                  {"BF16/Tide-BF16-00002-of-00002.gguf", FakeGguf(7000)},
                  {"mmproj-Tide-Q4_K_M.gguf", FakeGguf(500)}};
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      if (value) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
  }
  void Set(const std::string& name, const std::string& value) {
    const char* old = std::getenv(name.c_str());
    before_.try_emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    setenv(name.c_str(), value.c_str(), 1);
  }
  FetchSettings Settings() {
    FetchSettings settings = {.http = {.connect_seconds = 2,
                                       .stall_seconds = 2,
                                       .attempts = 3,
                                       .first_wait = std::chrono::milliseconds(1)},
                              .quiet = true};
    settings.http.say = [this](std::string_view text) { said_ += std::string(text) + "\n"; };
    return settings;
  }
  Result<StoredModel> Pull(const std::string& name) {
    said_.clear();
    return PullRemoteModel(*ParseModelName(name), Settings());
  }
  Result<StoredModel> FindOrPull(const std::string& name) {
    return FindOrPullModel(*ParseModelName(name), Settings());
  }
  Status ErrorOf(const std::string& name) { return Pull(name).status(); }
  [[nodiscard]] std::string RepoFolder() const {
    return folder_.File("hf/hub/models--tide--Tide-GGUF");
  }
  FakeRepo& Repo() { return hub_.repos["tide/Tide-GGUF"]; }
  static std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const StoredModel& model : StoredModels()) names.push_back(model.name);
    return names;
  }
  static uint64_t Remove(const std::string& name) {
    const auto freed = RemoveStoredModel(*ParseModelName(name));
    EXPECT_TRUE(freed.ok()) << freed.status().message();
    return freed.ok() ? *freed : 0;
  }
  size_t NumRequests() {
    return hub_.hub().TakeRequests().size() + hub_.cdn().TakeRequests().size();
  }

  TempFolder folder_;
  FakeHub hub_;
  std::map<std::string, std::optional<std::string>> before_;
  std::string said_;
};

TEST_F(RemoteModelsTest, AFileOfTheHubLiesWhereOtherProgramsLookForIt) {
  const auto model = Pull("hf:tide/Tide-GGUF");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::string& content = Repo().files["Tide-Q4_K_M.gguf"];
  const std::string blob = RepoFolder() + "/blobs/" + HexSha256(content);
  EXPECT_EQ(model->path,
            fmt::format("{}/snapshots/{}/Tide-Q4_K_M.gguf", RepoFolder(), std::string(40, 'a')));
  EXPECT_EQ(fs::read_symlink(model->path), "../../blobs/" + HexSha256(content));
  EXPECT_EQ(BytesOf(blob), content);
  EXPECT_EQ(BytesOf(RepoFolder() + "/refs/main"), std::string(40, 'a'));
  EXPECT_TRUE(fs::exists(
      folder_.File("hf/hub/.locks/models--tide--Tide-GGUF/" + HexSha256(content) + ".lock")));
  EXPECT_EQ(model->bytes, 4000U);
  EXPECT_THAT(Names(), ElementsAre("hf:tide/Tide-GGUF:Q4_K_M"));
}

TEST_F(RemoteModelsTest, AFileThatIsThereIsUsedWithoutARequest) {
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF").ok());
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF:Q8_0").ok());
  (void)NumRequests();
  for (const char* name :
       {"hf:tide/Tide-GGUF", "hf:tide/Tide-GGUF:q4_k_m", "hf:tide/Tide-GGUF/Tide-Q4_K_M.gguf"}) {
    const auto model = FindOrPull(name);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_THAT(model->path, HasSubstr("Tide-Q4_K_M.gguf"));
  }
  EXPECT_EQ(NumRequests(), 0U);
}

TEST_F(RemoteModelsTest, WithoutTheUsualQuantizationTheHubIsAskedForIt) {
  ASSERT_TRUE(FindOrPull("hf:tide/Tide-GGUF:Q8_0").ok());
  const auto model = FindOrPull("hf:tide/Tide-GGUF");
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(model->path, HasSubstr("Tide-Q4_K_M.gguf"));
}

TEST_F(RemoteModelsTest, OfflineOnlyWhatIsThereIsUsed) {
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF:Q8_0").ok());
  (void)NumRequests();
  Set("HF_HUB_OFFLINE", "1");
  EXPECT_TRUE(FindOrPull("hf:tide/Tide-GGUF").ok());
  EXPECT_TRUE(Pull("hf:tide/Tide-GGUF:Q8_0").ok());
  EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF:Q4_K_M").message(), HasSubstr("HF_HUB_OFFLINE forbids"));
  EXPECT_EQ(NumRequests(), 0U);
}

TEST_F(RemoteModelsTest, WithoutAConnectionWhatIsThereIsUsed) {
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF:Q8_0").ok());
  Set("HF_ENDPOINT", "http://127.0.0.1:1");
  EXPECT_TRUE(Pull("hf:tide/Tide-GGUF:Q8_0").ok());
  EXPECT_THAT(said_, HasSubstr("using the file that is there"));
  EXPECT_EQ(ErrorOf("hf:tide/Tide-GGUF:Q4_K_M").code(), StatusCode::kIo);
}

TEST_F(RemoteModelsTest, ANewRevisionIsFetchedAndSharesBytesThatStay) {
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF").ok());
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF:Q8_0").ok());
  Repo().commit = std::string(40, 'b');
  Repo().files["Tide-Q4_K_M.gguf"] = FakeGguf(4100, '!');
  (void)hub_.cdn().TakeRequests();
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF:Q8_0").ok());
  EXPECT_EQ(hub_.cdn().TakeRequests().size(), 0U);
  const auto model = Pull("hf:tide/Tide-GGUF");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->bytes, 4100U);
  EXPECT_THAT(Names(), ElementsAre("hf:tide/Tide-GGUF:Q4_K_M", "hf:tide/Tide-GGUF:Q8_0",
                                   "hf:tide/Tide-GGUF/Tide-Q4_K_M.gguf"));
  EXPECT_THAT(StoredModels().back().note, HasSubstr("an earlier revision, aaaaaaaa"));
  // Removing frees both revisions of the file and keeps the other file.
  EXPECT_EQ(Remove("hf:tide/Tide-GGUF:Q4_K_M"), 8100U);
  EXPECT_THAT(Names(), ElementsAre("hf:tide/Tide-GGUF:Q8_0"));
}

TEST_F(RemoteModelsTest, AllPartsOfASplitFileAreFetched) {
  const auto model = Pull("hf:tide/Tide-GGUF:bf16");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->num_files, 2);
  EXPECT_EQ(model->bytes, 16000U);
  EXPECT_THAT(model->path, HasSubstr("BF16/Tide-BF16-00001-of-00002.gguf"));
  EXPECT_EQ(fs::read_symlink(model->path).string().substr(0, 15), "../../../blobs/");
  EXPECT_THAT(Names(), ElementsAre("hf:tide/Tide-GGUF:BF16"));
  // A split model with a missing part is not listed.
  const std::string second =
      RepoFolder() + "/blobs/" + HexSha256(Repo().files["BF16/Tide-BF16-00002-of-00002.gguf"]);
  fs::remove(second);
  EXPECT_THAT(Names(), ElementsAre());
  ASSERT_TRUE(FindOrPull("hf:tide/Tide-GGUF:BF16").ok());
  EXPECT_EQ(Remove("hf:tide/Tide-GGUF:BF16"), 16000U);
  EXPECT_FALSE(fs::exists(RepoFolder()));
}

TEST_F(RemoteModelsTest, ACopyInTheSnapshotIsUsed) {
  const std::string snapshot = RepoFolder() + "/snapshots/" + std::string(40, 'a');
  fs::create_directories(snapshot);
  std::ofstream(snapshot + "/Tide-Q4_K_M.gguf") << Repo().files["Tide-Q4_K_M.gguf"];
  const auto model = Pull("hf:tide/Tide-GGUF");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(hub_.cdn().TakeRequests().size(), 0U);
  EXPECT_EQ(BytesOf(model->path), Repo().files["Tide-Q4_K_M.gguf"]);
  EXPECT_EQ(Remove("hf:tide/Tide-GGUF"), 4000U);
  EXPECT_FALSE(fs::exists(RepoFolder()));
}

TEST_F(RemoteModelsTest, APartThatTheHubDoesNotListIsAnError) {
  Repo().files.erase("BF16/Tide-BF16-00002-of-00002.gguf");
  EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF:BF16").message(),
              HasSubstr("lists no BF16/Tide-BF16-00002-of-00002.gguf"));
}

TEST_F(RemoteModelsTest, ListsThatComeInPagesAreReadToTheEnd) {
  hub_.page_size = 2;
  const auto model = Pull("hf:tide/Tide-GGUF:Q8_0");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(hub_.hub().TakeRequests().size(), 6U);  // the commit, four pages, the file
}

TEST_F(RemoteModelsTest, WhatIsNotThereIsAnsweredWithNearNames) {
  Status status = ErrorOf("hf:tide/Tide-GGUF:Q5_K_M");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(),
              HasSubstr("no file of the quantization Q5_K_M; it has BF16, Q4_K_M, Q8_0"));
  status = ErrorOf("hf:tide/Tide-GGUF/tide-q8.gguf");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("near names: Tide-Q8_0.gguf"));
  hub_.repos["tide/Words"].files = {{"README.md", ""}};
  EXPECT_THAT(ErrorOf("hf:tide/Words").message(), HasSubstr("has no GGUF file"));
  for (const char* token : {"", "hf_good"}) {
    Set("HF_TOKEN", token);
    status = ErrorOf("hf:tide/Tide-GUF");
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr("no repository hf:tide/Tide-GUF, or it is private"));
    EXPECT_THAT(status.message(), HasSubstr("near names: hf:tide/Tide-GGUF"));
  }
  EXPECT_FALSE(fs::exists(folder_.File("hf")));
}

TEST_F(RemoteModelsTest, AGatedFileNeedsALicenceAndAToken) {
  Repo().is_gated = true;
  Status status = ErrorOf("hf:tide/Tide-GGUF");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("is gated: accept its licence at "
                                                      "{}/tide/Tide-GGUF, and set HF_TOKEN to a "
                                                      "token of that account",
                                                      hub_.url())));
  Set("HF_TOKEN", "hf_other");
  EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF").message(), HasSubstr("(the one in use may not)"));
  EXPECT_THAT(Names(), ElementsAre());
  Set("HF_TOKEN", "hf_good");
  (void)hub_.cdn().TakeRequests();
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF").ok());
  for (const SeenRequest& request : hub_.cdn().TakeRequests()) {
    EXPECT_EQ(request.Header("authorization"), "");
  }
}

TEST_F(RemoteModelsTest, TheTokenThatTheHubsOwnProgramWroteIsUsed) {
  Repo().is_private = true;
  EXPECT_EQ(ErrorOf("hf:tide/Tide-GGUF").code(), StatusCode::kNotFound);
  fs::create_directories(folder_.File("hf"));
  std::ofstream(folder_.File("hf/token")) << "hf_good\n";
  EXPECT_TRUE(Pull("hf:tide/Tide-GGUF").ok());
}

TEST_F(RemoteModelsTest, FileNamesThatLeaveTheFolderAreIgnored) {
  Repo().files.clear();
  Repo().listed_only = {"../../../evil-Q4_K_M.gguf", "/etc/evil-Q4_K_M.gguf", "a/../../b.gguf",
                        std::string("c\nd.gguf")};
  EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF").message(), HasSubstr("has no GGUF file"));
  EXPECT_THAT(said_, HasSubstr("lists 4 file names that leave its folder; ignored"));
  for (const char* commit : {"../../x", "main", ""}) {
    Repo().commit = commit;
    EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF").message(),
                HasSubstr("expected a commit of 40 hexadecimal digits"));
  }
  EXPECT_FALSE(fs::exists(folder_.File("hf")));
}

TEST_F(RemoteModelsTest, WithoutAHashOfTheHubNothingIsFetched) {
  for (const char* oid : {"", "../../../x", "12"}) {
    Repo().false_oid["Tide-Q4_K_M.gguf"] = oid;
    EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF").message(), HasSubstr("no SHA-256"));
  }
  EXPECT_EQ(hub_.cdn().TakeRequests().size(), 0U);
}

TEST_F(RemoteModelsTest, AWrongHashLeavesNothingThatCouldBeUsed) {
  Repo().false_oid["Tide-Q4_K_M.gguf"] = std::string(64, '0');
  const Status status = ErrorOf("hf:tide/Tide-GGUF");
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("expected SHA-256 000"));
  EXPECT_THAT(Names(), ElementsAre());
  EXPECT_TRUE(fs::is_empty(RepoFolder() + "/blobs"));
  EXPECT_FALSE(fs::exists(RepoFolder() + "/refs/main"));
}

TEST_F(RemoteModelsTest, ADroppedDownloadGoesOnAndIsNeverUsedBeforeItsEnd) {
  bool drops = true;
  hub_.tamper_cdn = [&](const SeenRequest&, ServerAnswer* answer) {
    if (drops) answer->close_after = 1000;
  };
  EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF").message(), HasSubstr("3000 bytes are kept"));
  EXPECT_THAT(Names(), ElementsAre());
  Set("HF_HUB_OFFLINE", "1");
  EXPECT_FALSE(FindOrPull("hf:tide/Tide-GGUF").ok());
  Set("HF_HUB_OFFLINE", "0");
  drops = false;
  (void)hub_.cdn().TakeRequests();
  ASSERT_TRUE(FindOrPull("hf:tide/Tide-GGUF").ok());
  EXPECT_EQ(hub_.cdn().TakeRequests().at(0).Header("range"), "bytes=3000-");
}

TEST_F(RemoteModelsTest, ABusyHubIsAskedAgain) {
  int num_refused = 2;
  hub_.tamper_hub = [&](const SeenRequest&, ServerAnswer* answer) {
    if (num_refused-- > 0) *answer = {.status = 503};
  };
  EXPECT_TRUE(Pull("hf:tide/Tide-GGUF").ok());
  num_refused = 100;
  EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF:Q8_0").message(), HasSubstr("answered 503"));
}

TEST_F(RemoteModelsTest, AnAnswerThatIsNoJsonIsAnError) {
  hub_.tamper_hub = [&](const SeenRequest&, ServerAnswer* answer) { answer->body = "<html>"; };
  EXPECT_EQ(ErrorOf("hf:tide/Tide-GGUF").code(), StatusCode::kCorrupt);
  hub_.tamper_hub = [&](const SeenRequest& request, ServerAnswer* answer) {
    if (request.target.find("/tree/") != std::string::npos) answer->body = "{\"a\":[";
  };
  EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF").message(), HasSubstr("expected a list of files"));
}

TEST_F(RemoteModelsTest, ASecondFetchWaitsForTheFirst) {
  const std::string lock_path = folder_.File("hf/hub/.locks/models--tide--Tide-GGUF/" +
                                             HexSha256(Repo().files["Tide-Q4_K_M.gguf"]) + ".lock");
  fs::create_directories(fs::path(lock_path).parent_path());
  const int lock = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
  // The holder of the lock stores the blob while the second fetch waits.
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::string& content = Repo().files["Tide-Q4_K_M.gguf"];
    fs::create_directories(RepoFolder() + "/blobs");
    std::ofstream(RepoFolder() + "/blobs/" + HexSha256(content)) << content;
    close(lock);
  });
  const auto model = Pull("hf:tide/Tide-GGUF");
  holder.join();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_THAT(said_, HasSubstr("another process is fetching Tide-Q4_K_M.gguf; waiting"));
  EXPECT_EQ(hub_.cdn().TakeRequests().size(), 0U);
}

TEST_F(RemoteModelsTest, RemovingKeepsBytesThatAnotherNameShows) {
  Repo().files["Copy-Q4_K_M.gguf"] = Repo().files["Tide-Q4_K_M.gguf"];
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF/Tide-Q4_K_M.gguf").ok());
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF/Copy-Q4_K_M.gguf").ok());
  EXPECT_EQ(Remove("hf:tide/Tide-GGUF/Tide-Q4_K_M.gguf"), 0U);
  EXPECT_EQ(Remove("hf:tide/Tide-GGUF/Copy-Q4_K_M.gguf"), 4000U);
  EXPECT_FALSE(fs::exists(RepoFolder()));
}

TEST_F(RemoteModelsTest, RemovingNeedsANameThatStandsForOneModel) {
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF").ok());
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF:Q8_0").ok());
  Status status = RemoveStoredModel(*ParseModelName("hf:tide/Tide-GGUF")).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("hf:tide/Tide-GGUF/Tide-Q8_0.gguf"));
  EXPECT_EQ(Remove("hf:tide/Tide-GGUF:Q8_0"), 8000U);
  EXPECT_EQ(Remove("hf:tide/Tide-GGUF"), 4000U);
  status = RemoveStoredModel(*ParseModelName("hf:tide/Tide-GGUF")).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
}

TEST_F(RemoteModelsTest, AFileThatIsBeingFetchedIsNotRemoved) {
  ASSERT_TRUE(Pull("hf:tide/Tide-GGUF").ok());
  const std::string lock_path = folder_.File("hf/hub/.locks/models--tide--Tide-GGUF/" +
                                             HexSha256(Repo().files["Tide-Q4_K_M.gguf"]) + ".lock");
  const int lock = open(lock_path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(RemoveStoredModel(*ParseModelName("hf:tide/Tide-GGUF")).status().message(),
              HasSubstr("another process is fetching"));
  close(lock);
  EXPECT_EQ(Remove("hf:tide/Tide-GGUF"), 4000U);
}

TEST_F(RemoteModelsTest, OllamasModelsLieInEbbsOwnCache) {
  hub_.ollama = {{"library/tide:latest", FakeGguf(6000)},
                 {"library/tide:7b", FakeGguf(6000)},
                 {"team/tide:small", FakeGguf(3000)}};
  const auto model = Pull("ollama:tide");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->path,
            folder_.File("cache/ebb/ollama/blobs/sha256-" + HexSha256(FakeGguf(6000))));
  EXPECT_EQ(BytesOf(model->path), FakeGguf(6000));
  const auto requests = hub_.hub().TakeRequests();
  EXPECT_EQ(requests.at(0).target, "/v2/library/tide/manifests/latest");
  EXPECT_EQ(requests.at(0).Header("accept"),
            "application/vnd.docker.distribution.manifest.v2+json");
  ASSERT_TRUE(FindOrPull("ollama:tide").ok());
  EXPECT_EQ(hub_.hub().TakeRequests().size(), 0U);
  (void)hub_.cdn().TakeRequests();
  ASSERT_TRUE(Pull("ollama:tide:7b").ok());
  EXPECT_EQ(hub_.cdn().TakeRequests().size(), 0U);  // the same bytes
  ASSERT_TRUE(Pull("ollama:team/tide:small").ok());
  EXPECT_THAT(Names(),
              ElementsAre("ollama:team/tide:small", "ollama:tide:7b", "ollama:tide:latest"));
  EXPECT_EQ(Remove("ollama:tide"), 0U);
  EXPECT_EQ(Remove("ollama:tide:7b"), 6000U);
  EXPECT_THAT(Names(), ElementsAre("ollama:team/tide:small"));
}

TEST_F(RemoteModelsTest, AModelThatOllamaFetchedIsUsedWhereItLies) {
  hub_.ollama = {{"library/tide:latest", FakeGguf(6000)}};
  ASSERT_TRUE(Pull("ollama:tide").ok());
  fs::rename(folder_.File("cache/ebb/ollama"), folder_.File("ollama"));
  (void)NumRequests();
  const auto model = FindOrPull("ollama:tide");
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(model->path, HasSubstr(folder_.File("ollama/blobs/")));
  EXPECT_EQ(NumRequests(), 0U);
  EXPECT_EQ(RemoveStoredModel(*ParseModelName("ollama:tide")).status().code(),
            StatusCode::kNotFound);
}

TEST_F(RemoteModelsTest, TheRegistrysErrorsAreExplained) {
  hub_.ollama = {{"library/tide:latest", FakeGguf(6000)}};
  EXPECT_THAT(ErrorOf("ollama:tide:9b").message(), HasSubstr("no model ollama:tide:9b"));
  const auto with_body = [&](const std::string& body) {
    hub_.tamper_hub = [body](const SeenRequest&, ServerAnswer* answer) { answer->body = body; };
    return ErrorOf("ollama:tide");
  };
  EXPECT_EQ(with_body("{}").code(), StatusCode::kCorrupt);
  EXPECT_EQ(with_body(R"({"layers":[]})").code(), StatusCode::kUnsupported);
  EXPECT_EQ(with_body(R"({"layers":[{"mediaType":"application/vnd.ollama.image.model",)"
                      R"("digest":"sha256:../../x","size":3}]})")
                .code(),
            StatusCode::kCorrupt);
  EXPECT_THAT(
      with_body(R"({"layers":[{"mediaType":"application/vnd.ollama.image.adapter"}]})").message(),
      HasSubstr("adapter"));
}

TEST_F(RemoteModelsTest, AUrlsFileIsCheckedByTheHashThatWasGiven) {
  TestHttpServer server([](const SeenRequest& request) {
    return request.target.starts_with("/tide") ? ServerAnswer{.body = FakeGguf(5000)}
                                               : ServerAnswer{.status = 404};
  });
  const std::string url = server.url() + "/tide.gguf";
  const std::string with_hash = url + "#sha256=" + HexSha256(FakeGguf(5000));
  auto model = Pull(with_hash);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(BytesOf(model->path), FakeGguf(5000));
  (void)server.TakeRequests();
  ASSERT_TRUE(FindOrPull(with_hash).ok());
  EXPECT_EQ(server.TakeRequests().size(), 0U);
  EXPECT_EQ(ErrorOf(url + "#sha256=" + std::string(64, '0')).code(), StatusCode::kCorrupt);
  model = Pull(url);
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(said_, HasSubstr("its SHA-256 is " + HexSha256(FakeGguf(5000))));
  EXPECT_THAT(ErrorOf(server.url() + "/ebb.gguf").message(), HasSubstr("has no such file"));
  EXPECT_THAT(Names(), ElementsAre(url, with_hash));
  EXPECT_GE(Remove(url), 5000U);
  EXPECT_THAT(Names(), ElementsAre(with_hash));
}

TEST_F(RemoteModelsTest, AUrlOfTheFirstPartBringsAll) {
  TestHttpServer server([](const SeenRequest& request) {
    return ServerAnswer{
        .body = FakeGguf(request.target.find("00002-of") == std::string::npos ? 1000 : 2000)};
  });
  const auto model = Pull(server.url() + "/x/tide-00001-of-00002.gguf?a=b");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->bytes, 3000U);
  EXPECT_EQ(server.TakeRequests().at(1).target, "/x/tide-00002-of-00002.gguf?a=b");
}

TEST_F(RemoteModelsTest, AProxyOfTheEnvironmentIsUsed) {
  TestHttpServer proxy([](const SeenRequest&) { return ServerAnswer{.status = 418}; });
  Set("http_proxy", proxy.url());
  Set("no_proxy", "");
  Set("HF_ENDPOINT", "http://hub.invalid");
  EXPECT_THAT(ErrorOf("hf:tide/Tide-GGUF").message(), HasSubstr("answered 418"));
  EXPECT_EQ(proxy.TakeRequests().at(0).target, "http://hub.invalid/api/models/tide/Tide-GGUF");
}

}  // namespace
}  // namespace ebb::cli
