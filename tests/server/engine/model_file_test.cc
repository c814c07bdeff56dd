// Checks a server whose model file is changed by another program.
#include <filesystem>
#include <fstream>

#include "tests/server/server_fixture.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class ModelFileServerTest : public ServerTest {
 protected:
  void SetUp() override {
    fs::copy_file(EBB_SOURCE_DIR "/training/pebble/pebble.gguf", path_);
    auto model = Model::Load({.path = path_});
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    auto server = Server::Start(*model, Options());
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  [[nodiscard]] ClientAnswer Ask() const {
    return Client(port()).Post("/v1/chat/completions", Chat(1, {{"max_tokens", 8}}).dump());
  }
  void ExpectRefusals() const {
    for (int i = 0; i < 2; ++i) {
      const ClientAnswer answer = Ask();
      EXPECT_EQ(answer.status, 500) << answer.body;
      EXPECT_THAT(answer.body, HasSubstr("the model file model.gguf changed while it was in use"));
      EXPECT_THAT(answer.body, Not(HasSubstr(folder_.File(""))));
    }
    EXPECT_EQ(Client(port()).Get("/v1/models").status, 200);
  }

  const TempFolder folder_;
  const std::string path_ = folder_.File("model.gguf");
};

TEST_F(ModelFileServerTest, ATruncatedFileGivesErrorsAndTheServerLives) {
  ASSERT_EQ(Ask().status, 200);
  fs::resize_file(path_, 4096);
  ExpectRefusals();
}

TEST_F(ModelFileServerTest, AnOverwrittenFileGivesErrorsAndNoNonsense) {
  ASSERT_EQ(Ask().status, 200);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file << std::string(fs::file_size(path_), '\0') << std::flush;
  ExpectRefusals();
}

TEST_F(ModelFileServerTest, AReplacedFileIsUsedOn) {
  const std::string before = json::parse(Ask().body)["choices"].dump();
  std::ofstream(folder_.File("other")) << "another model";
  fs::rename(folder_.File("other"), path_);
  EXPECT_EQ(json::parse(Ask().body)["choices"].dump(), before);
}

}  // namespace
}  // namespace ebb::server
