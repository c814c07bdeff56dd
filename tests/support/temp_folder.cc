#include "tests/support/temp_folder.h"

#include <cstdlib>
#include <system_error>

namespace ebb {

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "ebb-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ebb
