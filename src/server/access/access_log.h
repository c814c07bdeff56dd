// The access log: one line for each request, to stderr or to a file.
//
// A line is `name=value` pairs or a JSON object, in printable ASCII whatever the request holds, so
// that a client can neither forge a line nor drive a terminal. It holds no key and no text of
// prompts or answers.
//
// A thread of its own writes, so that a slow disk or a pipe that is not read delays no request:
// lines are dropped and counted while 4 MiB of them wait, and when the disk is full. The file is
// opened with O_APPEND: a rotated file may be truncated in place, or moved away before Reopen().
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
  // where: "stderr", or the path of a file, which is made where there is none. Errors: IoError (the
  // file cannot be opened for appending).
  static Result<std::shared_ptr<AccessLog>> Open(const std::string& where, AccessLogFormat format);
  // Writes what waits, as far as it can be written within a second.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void Write(const AccessRecord& record);
  // Opens the file again, by the same path: lines that wait go there. Errors: those of Open(); the
  // old file is used on then.
  [[nodiscard]] Status Reopen();
  // Lines that were not written.
  [[nodiscard]] uint64_t num_dropped() const { return num_dropped_; }

 private:
  AccessLog(std::string path, AccessLogFormat format, int file)
      : path_(std::move(path)), format_(format), file_(file) {}
  void Run();
  // False: the line is lost.
  [[nodiscard]] bool WriteLine(const std::string& line);
  // False: the file takes nothing for a second.
  [[nodiscard]] bool WaitUntilWritable() const EBB_REQUIRES(file_mutex_);

  const std::string path_;  // empty: stderr
  const AccessLogFormat format_;
  std::atomic<uint64_t> num_dropped_ = 0;
  Mutex file_mutex_;
  int file_ EBB_GUARDED_BY(file_mutex_);
  bool is_torn_ EBB_GUARDED_BY(file_mutex_) = false;  // the last line was written in part
  Mutex mutex_;
  CondVar wake_;
  std::deque<std::string> lines_ EBB_GUARDED_BY(mutex_);
  size_t waiting_bytes_ EBB_GUARDED_BY(mutex_) = 0;
  bool stopping_ EBB_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ACCESS_LOG_H_
