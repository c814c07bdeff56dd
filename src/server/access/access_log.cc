#include "src/server/access/access_log.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

constexpr size_t kMostWaitingBytes = size_t{4} << 20;

Result<int> OpenForAppending(const std::string& path) {
  // Without O_NONBLOCK, open() would block on a FIFO that no process reads.
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
  if (file >= 0) return file;
  return IoError(fmt::format("the access log {} cannot be opened: {}", path,
                             std::generic_category().message(errno)));
}

}  // namespace

Result<std::shared_ptr<AccessLog>> AccessLog::Open(const std::string& where,
                                                   AccessLogFormat format) {
  const bool is_stderr = where == "stderr";
  int file = STDERR_FILENO;
  if (!is_stderr) {
    EBB_ASSIGN_OR_RETURN(file, OpenForAppending(where));
  }
  std::shared_ptr<AccessLog> log(new AccessLog(is_stderr ? "" : where, format, file));
  // Blocks all signals in the log's thread, so that the process handles them on its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  log->thread_ = std::thread([raw = log.get()] { raw->Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return log;
}

AccessLog::~AccessLog() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
  if (!path_.empty()) close(file_);
}

Status AccessLog::Reopen() {
  if (path_.empty()) return OkStatus();
  EBB_ASSIGN_OR_RETURN(const int opened, OpenForAppending(path_));
  const MutexLock lock(file_mutex_);
  close(std::exchange(file_, opened));
  is_torn_ = false;
  return OkStatus();
}

void AccessLog::Write(const AccessRecord& record) {
  std::string line = FormatRecord(record, format_) + '\n';
  {
    const MutexLock lock(mutex_);
    if (waiting_bytes_ + line.size() > kMostWaitingBytes) {
      ++num_dropped_;
      return;
    }
    waiting_bytes_ += line.size();
    lines_.push_back(std::move(line));
  }
  wake_.NotifyOne();
}

void AccessLog::Run() {
  MutexLock lock(mutex_);
  bool is_stuck = false;
  while (true) {
    while (!stopping_ && lines_.empty()) wake_.Wait(mutex_);
    if (lines_.empty()) return;
    if (stopping_ && is_stuck) {
      num_dropped_ += lines_.size();
      return;
    }
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    waiting_bytes_ -= line.size();
    lock.Unlock();
    is_stuck = !WriteLine(line);
    if (is_stuck) ++num_dropped_;
    lock.Lock();
  }
}

bool AccessLog::WriteLine(const std::string& line) {
  const MutexLock lock(file_mutex_);
  std::string rest = is_torn_ ? '\n' + line : line;
  const size_t whole = rest.size();
  while (!rest.empty()) {
    // stderr may be a blocking pipe, but write() does not block after poll(): a line fits into the
    // PIPE_BUF bytes that poll() promises.
    if (!WaitUntilWritable()) break;
    const ssize_t size = write(file_, rest.data(), rest.size());
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size <= 0) break;
    rest.erase(0, static_cast<size_t>(size));
  }
  if (rest.size() < whole) is_torn_ = !rest.empty();
  return rest.empty();
}

bool AccessLog::WaitUntilWritable() const {
  constexpr int kMilliseconds = 1000;
  pollfd file = {.fd = file_, .events = POLLOUT, .revents = 0};
  return poll(&file, 1, kMilliseconds) > 0;
}

}  // namespace ebb::server
