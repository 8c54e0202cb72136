// PeerCredentials: what a node shows to other nodes, and the authority that it trusts.
#pragma once

#include <string>

#include "base/clock.h"

namespace varda::agent::identity {

struct PeerCredentials {
  std::string certificate_pem, key_pem, ca_pem;
  WallTime issued;  // lower bound of the current time
  friend bool operator==(const PeerCredentials&, const PeerCredentials&) = default;
};

}  // namespace varda::agent::identity
