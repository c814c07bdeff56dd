// The tables of a sequence's groups. Groups share one table until they differ: a table is copied
// when a change touches some of its groups only.
//
// Invariants: every group stands in the list of exactly one table, which is Of() the group.
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

  // One table without rows, of all groups.
  explicit GroupTables(int num_groups);

  [[nodiscard]] GroupTable& Of(int group) { return *of_group_[group]; }
  [[nodiscard]] const GroupTable& Of(int group) const { return *of_group_[group]; }
  // In the order of their creation.
  [[nodiscard]] const Tables& all() const { return tables_; }
  [[nodiscard]] size_t size() const { return tables_.size(); }
  [[nodiscard]] int num_groups() const { return static_cast<int>(of_group_.size()); }

  // Returns the group's table, for itself alone. May throw std::bad_alloc, and changes nothing
  // then.
  GroupTable* Detach(int group);
  // Takes these tables instead. REQUIRES: every group stands in the list of exactly one.
  void Replace(Tables tables);
  // A hint that rows of `group` are removed soon, and then those of the next groups.
  void FetchForRemoval(int group) const;

  // The most rows of any group.
  [[nodiscard]] size_t max_rows() const;
  [[nodiscard]] bool HasCompressedRows() const;
  [[nodiscard]] size_t table_bytes() const;
  // Internal, naming the table, when an invariant does not hold; O(rows), for tests.
  [[nodiscard]] Status Validate() const;

 private:
  Tables tables_;
  std::vector<GroupTable*> of_group_;
};

}  // namespace ebb

#endif  // EBB_KV_GROUP_TABLES_H_
