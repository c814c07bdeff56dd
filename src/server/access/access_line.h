// AccessLine collects the access log's data about one request. Its destructor writes the line:
// after the connection has sent the answer, or after the engine's job has ended, which is later if
// the client disconnects.
//
// Thread safety: members must be called on the thread of connections; the last owner may destroy
// the line on any thread.
#ifndef EBB_SERVER_ACCESS_ACCESS_LINE_H_
#define EBB_SERVER_ACCESS_ACCESS_LINE_H_

#include <chrono>
#include <memory>
#include <utility>

#include "src/server/access/access_log.h"
#include "src/server/access/access_record.h"
#include "src/server/http/http_server.h"

namespace ebb::server {

class AccessLine final : public RequestWatcher {
 public:
  // Begins the line of `request`, whose header has just been read; the line's time is now.
  AccessLine(std::shared_ptr<AccessLog> log, const HttpRequest& request);
  ~AccessLine() override { log_->Write(record_); }
  AccessLine(const AccessLine&) = delete;
  AccessLine& operator=(const AccessLine&) = delete;

  void OnAnswer(const HttpAnswer& answer) override;
  void OnEnd(const HttpTraffic& traffic) override;

  void SetKey(std::string name) { record_.key = std::move(name); }
  // Sets the id of a request whose answer has no header from which to take the id.
  void SetId(std::string id) { record_.request_id = std::move(id); }
  // Sets the error of a stream that failed after its header was sent.
  void SetError(std::string error) { record_.error = std::move(error); }
  // Adds the numbers of a job that has ended. `is_first`: the job is the first choice of its
  // prompt, so that the prompt's tokens are counted once.
  void AddJob(const JobEnd& end, bool is_first);

 private:
  const std::shared_ptr<AccessLog> log_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  AccessRecord record_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ACCESS_LINE_H_
