#include "src/kv/tables/group_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/base/fetch_ahead.h"

namespace ebb {

GroupTables::GroupTables(int num_groups) {
  tables_.push_back(std::make_unique<GroupTable>());
  GroupTable* table = tables_.front().get();
  for (int group = 0; group < num_groups; ++group) table->groups.push_back(group);
  of_group_.assign(num_groups, table);
}

GroupTable* GroupTables::Detach(int group) {
  GroupTable* table = of_group_[group];
  if (table->groups.size() == 1) return table;
  // Allocates all memory before it changes anything.
  auto own = std::make_unique<GroupTable>(*table);
  tables_.push_back(std::move(own));
  tables_.back()->groups.assign(1, group);
  std::erase(table->groups, group);
  of_group_[group] = tables_.back().get();
  return tables_.back().get();
}

void GroupTables::Replace(Tables tables) {
  tables_ = std::move(tables);
  for (const auto& table : tables_) {
    for (const int group : table->groups) of_group_[group] = table.get();
  }
}

// Fetches the arrays of this group, and the addresses of the next group's arrays.
void GroupTables::FetchForRemoval(int group) const {
  Of(group).rows.FetchAhead();
  if (group + 1 < num_groups()) FetchAhead(std::span<const GroupTable>(&Of(group + 1), 1));
}

size_t GroupTables::max_rows() const {
  size_t num_rows = 0;
  for (const auto& table : tables_) num_rows = std::max(num_rows, table->rows.num_rows());
  return num_rows;
}

bool GroupTables::HasCompressedRows() const {
  return std::ranges::any_of(tables_, [](const auto& table) { return table->HasCompressed(); });
}

size_t GroupTables::table_bytes() const {
  size_t bytes = tables_.capacity() * sizeof(tables_[0]) + of_group_.capacity() * sizeof(void*);
  for (const auto& table : tables_) bytes += table->table_bytes();
  return bytes;
}

Status GroupTables::Validate() const {
  size_t num_in_tables = 0;
  for (size_t i = 0; i < tables_.size(); ++i) {
    const GroupTable& table = *tables_[i];
    num_in_tables += table.groups.size();
    if (const Status status = table.Validate(); !status.ok()) {
      return Internal(fmt::format("table {}: {}", i, status.message()));
    }
    for (const int group : table.groups) {
      if (&Of(group) != &table) {
        return Internal(fmt::format("group {} is in the list of table {}, not its own", group, i));
      }
    }
  }
  if (num_in_tables == of_group_.size()) return OkStatus();
  return Internal(fmt::format("{} groups stand in tables", num_in_tables));
}

}  // namespace ebb
