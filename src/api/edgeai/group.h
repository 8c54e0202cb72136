// The API groups that have Datasets and Models. Objects of both groups mean the same. On the wire,
// the member with the URL has different names, and only objects of sedna.io may name a Secret.
#pragma once

namespace varda::api {

enum class Group { kEdgeai, kSedna };

}  // namespace varda::api
