// A folder of its own for a test, removed with everything in it.
#ifndef EBB_TESTS_SUPPORT_TEMP_FOLDER_H_
#define EBB_TESTS_SUPPORT_TEMP_FOLDER_H_

#include <filesystem>
#include <string>

namespace ebb {

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] std::string File(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_TEMP_FOLDER_H_
