// The feeds of the tab "Server" of the chat page: the server's state as JSON, once or as events
// while a page is open, and the fate of each token of one request.
//
// Privacy: requests are named by their number alone, which opens nothing; text is shown only if the
// server was started with that (DashboardMode).
//
// Thread safety: all members belong to the thread of connections.
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
#include "src/server/api/api_error.h"
#include "src/server/engine/job_view.h"
#include "src/server/http/http_server.h"
#include "src/server/monitoring/dashboard_mode.h"

namespace ebb::server {

// The dashboard's facts about the server itself.
struct DashboardSetting {
  DashboardMode mode = DashboardMode::kFigures;
  std::string model_id;
  double max_stall_seconds = 0;
};

// The sources of its data. `tell` is called on the thread of connections, soon or never.
struct DashboardSource {
  std::function<void(std::function<void(Snapshot)> tell)> look;
  std::function<void(JobId, std::function<void(std::optional<TokenFates>)> tell)> trace;
  std::function<void(double seconds, std::function<void()> work)> later;
};

class Dashboard {
 public:
  Dashboard(std::shared_ptr<const Model> model, DashboardSetting setting, DashboardSource source);

  // Adds the routes of the feeds, which are for an admin. None where the dashboard is off.
  void AddRoutes(std::vector<Route>* routes);
  // Ends all streams; none begins any more.
  void Close();
  [[nodiscard]] size_t num_watchers() const { return watchers_.size(); }

 private:
  // A stream of events. A newer event replaces one that was not taken yet.
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

// Pure parts.
[[nodiscard]] Json StatusJson(const Snapshot& snapshot, const DashboardSetting& setting);
// Texts are those of tokens from `from` on. Model: null: without texts.
[[nodiscard]] Json FatesJson(const TokenFates& fates, const Model* model, size_t from);

}  // namespace ebb::server

#endif  // EBB_SERVER_MONITORING_DASHBOARD_H_
