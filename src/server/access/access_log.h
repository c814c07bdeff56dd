// AccessLog writes one line for each request, to stderr or to a file.
//
// A line is `name=value` pairs or a JSON object. It is printable ASCII even if the request contains
// other characters, so that a client can neither forge a line nor control a terminal. It contains
// no key and no text of prompts or answers.
//
// A separate thread writes, so that a slow disk or a pipe that no process reads delays no request.
// The log drops and counts lines while 4 MiB of lines wait and while the disk is full. It opens the
// file with O_APPEND: a log rotation may truncate the file in place, or move it away and call
// Reopen().
//
// Thread safety: all members may be called from any thread.
#ifndef EBB_SERVER_ACCESS_ACCESS_LOG_H_
#define EBB_SERVER_ACCESS_ACCESS_LOG_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "ebb/status.h"
#include "src/base/threads/mutex.h"
#include "src/server/access/access_record.h"

namespace ebb::server {

class AccessLog {
 public:
  // Opens the log. `where` is "stderr" or the path of a file, which is created if it does not
  // exist. Errors: IoError (the file cannot be opened for appending).
  static Result<std::shared_ptr<AccessLog>> Open(const std::string& where, AccessLogFormat format);
  // Writes the waiting lines; drops the rest as soon as the file accepts nothing for a second.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void Write(const AccessRecord& record);
  // Opens the file again by the same path, so that waiting lines go to the new file. Errors: those
  // of Open(); the log then goes on with the old file.
  [[nodiscard]] Status Reopen();
  // Returns the number of lines that were not written.
  [[nodiscard]] uint64_t num_dropped() const { return num_dropped_; }

 private:
  AccessLog(std::string path, AccessLogFormat format, int file)
      : path_(std::move(path)), format_(format), file_(file) {}
  void Run();
  // Writes one line. Returns false if the line could not be written.
  [[nodiscard]] bool WriteLine(const std::string& line);
  // Waits until the file accepts bytes. Returns false if it accepts none within a second.
  [[nodiscard]] bool WaitUntilWritable() const EBB_REQUIRES(file_mutex_);

  const std::string path_;  // empty: writes to stderr
  const AccessLogFormat format_;
  std::atomic<uint64_t> num_dropped_ = 0;
  Mutex file_mutex_;
  int file_ EBB_GUARDED_BY(file_mutex_);
  // Is true if only a part of the last line was written; the next line then begins with '\n'.
  bool is_torn_ EBB_GUARDED_BY(file_mutex_) = false;
  Mutex mutex_;
  CondVar wake_;
  std::deque<std::string> lines_ EBB_GUARDED_BY(mutex_);
  size_t waiting_bytes_ EBB_GUARDED_BY(mutex_) = 0;
  bool stopping_ EBB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ACCESS_LOG_H_
