#include "apps/common/models/fetch_progress.h"

#include <unistd.h>

#include "apps/common/terminal/say.h"
#include "apps/common/terminal/screen.h"

namespace ebb::cli {

void FetchProgress::Update(uint64_t done, uint64_t total) {
  constexpr uint64_t kMegabyte = 1000000;
  if (quiet_ || total == 0) return;
  if (TakesEscapes(STDERR_FILENO)) {
    if (bar_ == nullptr) {
      bar_ = std::make_unique<ProgressBar>(
          "fetching", "MB", static_cast<int64_t>(total / kMegabyte), ProgressBar::Display::kAuto);
    }
    bar_->Update(static_cast<int64_t>(done / kMegabyte));
    return;
  }
  const uint64_t tenths = done * 10 / total;
  if (tenths <= tenths_said_) return;
  tenths_said_ = tenths;
  Say("{}: {} of {} MB, {} %\n", name_, done / kMegabyte, total / kMegabyte, tenths * 10);
}

}  // namespace ebb::cli
