// Dashboard serves the data of the tab "Server" of the chat page: the server's state as JSON, once
// or as a stream of events while a page is open, and the tier of each token of a request.
//
// Privacy: requests appear only as numbers, which give access to nothing. Their text appears only
// if the server was started with DashboardMode::kText.
//
// Thread safety: all members must be called on the thread of connections.
#ifndef EBB_SERVER_MONITORING_DASHBOARD_H_
#define EBB_SERVER_MONITORING_DASHBOARD_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/model.h"
#include "src/server/access/router.h"
#include "src/server/api/base/api_error.h"
#include "src/server/engine/job_view.h"
#include "src/server/http/http_server.h"
#include "src/server/monitoring/dashboard_mode.h"

namespace ebb::server {

// DashboardSetting limits the data that the dashboard shows, and describes the server.
struct DashboardSetting {
  DashboardMode mode = DashboardMode::kFigures;
  std::string model_id;
  double max_stall_seconds = 0;
};

// DashboardSource has the functions that get the dashboard's data. They call `tell` with the data
// on the thread of connections, later or never.
struct DashboardSource {
  std::function<void(std::function<void(Snapshot)> tell)> look;
  std::function<void(JobId, std::function<void(std::optional<TokenFates>)> tell)> trace;
  std::function<void(double seconds, std::function<void()> work)> later;
};

class Dashboard {
 public:
  Dashboard(std::shared_ptr<const Model> model, DashboardSetting setting, DashboardSource source);

  // Adds the dashboard's routes, which need an admin's key; adds none if the dashboard is off.
  void AddRoutes(std::vector<Route>* routes);
  // Ends all streams and refuses new ones.
  void Close();
  [[nodiscard]] size_t num_watchers() const { return watchers_.size(); }

 private:
  // Watcher is one stream of events. A new event replaces an older one that was not sent yet.
  struct Watcher {
    std::shared_ptr<Reply> reply;
    std::string next;
  };
  void SendStatus(const std::shared_ptr<Reply>& reply) const;
  void SendFates(std::string_view path, const std::shared_ptr<Reply>& reply) const;
  void Watch(const std::shared_ptr<Reply>& reply);
  void Tick();
  void Tell(const Snapshot& snapshot);

  const std::shared_ptr<const Model> model_;
  const DashboardSetting setting_;
  const DashboardSource source_;
  std::vector<std::shared_ptr<Watcher>> watchers_;
  bool ticking_ = false;
  bool is_closed_ = false;
};

// Returns the server's state as JSON. Pure, as FatesJson() is.
[[nodiscard]] Json StatusJson(const Snapshot& snapshot, const DashboardSetting& setting);
// Returns the tiers of a job's tokens as JSON, with the texts of the tokens from index `from` on.
// `model`: null leaves the texts out.
[[nodiscard]] Json FatesJson(const TokenFates& fates, const Model* model, size_t from);

}  // namespace ebb::server

#endif  // EBB_SERVER_MONITORING_DASHBOARD_H_
