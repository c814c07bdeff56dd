// Checks that a session file opens only with the record with which it was saved.
#include "src/server/engine/session_shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/pebble_model.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using testing::HasSubstr;
using testing::Not;

class SessionShelfTest : public PebbleModelTest {
 protected:
  void SetUp() override { engine_ = *Engine::Create(model_, {.threads = 1}); }

  SavedSession SaveFor(const std::string& tenant, int num_tokens) {
    auto session = *engine_->OpenSession({});
    EXPECT_TRUE(session->Prefill(std::vector<Token>(static_cast<size_t>(num_tokens), 5)).ok());
    auto saved = SessionShelf::Save(session.get(), {.tenant = tenant, .folder = folder()}, {});
    EXPECT_TRUE(saved.ok()) << saved.status().ToString();
    return *std::move(saved);
  }
  // Opens the file as a job of `tenant` with this record does.
  Status Open(const std::string& file, const std::string& tenant, const SessionRecord& record) {
    SessionShelf shelf;
    trouble_ = SessionTrouble::kNone;
    return shelf
        .Open(engine_.get(), {},
              {.file = file,
               .tenant = tenant,
               .file_tag = record.file_tag,
               .file_tokens = record.num_tokens},
              &trouble_)
        .status();
  }

  [[nodiscard]] std::string folder() const {
    return std::filesystem::path(folder_.File("any")).parent_path().string();
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
  SessionTrouble trouble_ = SessionTrouble::kNone;
};

TEST_F(SessionShelfTest, OpensTheFileThatWasSavedWithTheRecord) {
  const SavedSession saved = SaveFor("one", 9);
  EXPECT_EQ(saved.record.num_tokens, 9);
  EXPECT_TRUE(Open(saved.file, "one", saved.record).ok());
}

TEST_F(SessionShelfTest, RefusesTheFileOfAnotherTenantOrSession) {
  const SavedSession mine = SaveFor("one", 9);
  const SavedSession of_same_tenant = SaveFor("one", 9);
  const SavedSession of_another = SaveFor("two", 9);
  for (const SavedSession& other : {of_same_tenant, of_another}) {
    const Status status = Open(other.file, "one", mine.record);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("belongs to another conversation"));
    EXPECT_EQ(trouble_, SessionTrouble::kCorrupt);
  }
  // That session's own record does not open it either.
  EXPECT_EQ(Open(of_another.file, "one", of_another.record).code(), StatusCode::kCorrupt);
}

TEST_F(SessionShelfTest, RefusesAFileWhoseLengthTheRecordContradicts) {
  const SavedSession saved = SaveFor("one", 9);
  SessionRecord record = saved.record;
  record.num_tokens = 8;
  const Status status = Open(saved.file, "one", record);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("has 9 tokens, expected 8"));
}

TEST_F(SessionShelfTest, ErrorsNameNoPath) {
  const SavedSession saved = SaveFor("one", 9);
  std::filesystem::resize_file(saved.file, std::filesystem::file_size(saved.file) / 2);
  const Status cut = Open(saved.file, "one", saved.record);
  EXPECT_EQ(cut.code(), StatusCode::kCorrupt);
  EXPECT_THAT(cut.message(), HasSubstr("the stored session: "));
  const Status missing = Open(folder() + "/none", "one", saved.record);
  const auto unsaved = SessionShelf::Save(engine_->OpenSession({})->get(),
                                          {.folder = folder() + "/no/such/folder"}, {});
  ASSERT_FALSE(unsaved.ok());
  for (const Status& status : {cut, missing, unsaved.status()}) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), Not(HasSubstr(folder())));
  }
}

}  // namespace
}  // namespace ebb::server
