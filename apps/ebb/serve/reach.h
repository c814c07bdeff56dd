// Finds out whether other devices can connect to a server, and at which address.
#ifndef EBB_APPS_EBB_SERVE_REACH_H_
#define EBB_APPS_EBB_SERVE_REACH_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace ebb::cli {

// Returns this machine's address on the network that its default route leads to, as text, of IPv4
// or of IPv6; empty if there is no such route. Sends nothing.
[[nodiscard]] std::string AddressOnNetwork(bool is_v6);

// Returns lines for a server that requires one of the `num_keys` keys of `file`; lacks_admin: none
// of them is an admin's, which the dashboard's figures need.
[[nodiscard]] std::string KeysText(std::string_view file, size_t num_keys, bool lacks_admin);

// Returns lines for a server that listens at `addresses` ("0.0.0.0:8080", "unix:/path"): the
// address that other devices open if it listens on all networks, and a warning if they can reach it
// and it has no keys. Empty if only this machine reaches it. `own_address`: AddressOnNetwork().
[[nodiscard]] std::string ReachText(std::span<const std::string> addresses, bool has_keys,
                                    const std::function<std::string(bool is_v6)>& own_address);

}  // namespace ebb::cli

#endif  // EBB_APPS_EBB_SERVE_REACH_H_
