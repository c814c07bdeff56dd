// Holds the tables of a sequence's groups. Groups share one table until they differ: a change that
// concerns only some of a table's groups copies the table.
//
// Invariant: every group is in the list of exactly one table, which is Of() the group.
#ifndef EBB_KV_GROUP_TABLES_H_
#define EBB_KV_GROUP_TABLES_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "src/kv/tables/group_table.h"

namespace ebb {

class GroupTables {
 public:
  using Tables = std::vector<std::unique_ptr<GroupTable>>;

  // Makes one table without rows, shared by all groups.
  explicit GroupTables(int num_groups);

  [[nodiscard]] GroupTable& Of(int group) { return *of_group_[group]; }
  [[nodiscard]] const GroupTable& Of(int group) const { return *of_group_[group]; }
  // Returns all tables in the order of their creation.
  [[nodiscard]] const Tables& all() const { return tables_; }
  [[nodiscard]] size_t size() const { return tables_.size(); }
  [[nodiscard]] int num_groups() const { return static_cast<int>(of_group_.size()); }

  // Returns a table that belongs to the group alone, copying a shared one. If it throws
  // std::bad_alloc, nothing has changed.
  GroupTable* Detach(int group);
  // Replaces all tables. REQUIRES: every group is in the list of exactly one.
  void Replace(Tables tables);
  // Prefetches the group's table, as a hint that its rows are removed soon, followed by rows of the
  // next groups.
  void FetchForRemoval(int group) const;

  // Returns the most rows of any group.
  [[nodiscard]] size_t max_rows() const;
  [[nodiscard]] bool HasCompressedRows() const;
  [[nodiscard]] size_t table_bytes() const;
  // Returns Internal, naming the table, if an invariant does not hold, for tests; takes O(rows).
  [[nodiscard]] Status Validate() const;

 private:
  Tables tables_;
  std::vector<GroupTable*> of_group_;
};

}  // namespace ebb

#endif  // EBB_KV_GROUP_TABLES_H_
