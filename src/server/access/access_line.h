// The line of the access log for one request, while it is gathered. It is written when the last one
// that knows something of the request lets go of it: the connection when the answer is sent, or the
// engine's job, which ends later where the client has gone.
//
// Thread safety: members belong to the thread of connections; the last owner may let go on any.
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
  // Begins the line of `request`, whose header was read now.
  AccessLine(std::shared_ptr<AccessLog> log, const HttpRequest& request);
  ~AccessLine() override { log_->Write(record_); }
  AccessLine(const AccessLine&) = delete;
  AccessLine& operator=(const AccessLine&) = delete;

  void OnAnswer(const HttpAnswer& answer) override;
  void OnEnd(const HttpTraffic& traffic) override;

  void SetKey(std::string name) { record_.key = std::move(name); }
  // The request's id if no response header was sent.
  void SetId(std::string id) { record_.request_id = std::move(id); }
  // The error of a stream, whose header could not carry it.
  void SetError(std::string error) { record_.error = std::move(error); }
  // is_first: of the choices of its prompt.
  void AddJob(const JobEnd& end, bool is_first);

 private:
  const std::shared_ptr<AccessLog> log_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  AccessRecord record_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ACCESS_LINE_H_
