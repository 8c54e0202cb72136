#include "net/local_address.h"

#include <arpa/inet.h>
#include <initializer_list>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace varda::net {
namespace {

/// "" if there is no route.
std::string source_of_route(const addrinfo& target) {
  const int fd = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage source{};
  socklen_t size = sizeof(source);
  // A connected UDP socket has a route and has sent nothing.
  const bool found = ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&source), &size) == 0;
  ::close(fd);
  if (!found) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (source.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(source).sin_addr, text, sizeof(text));
  } else if (source.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(source).sin6_addr, text,
              sizeof(text));
  }
  return text;
}

}  // namespace

Result<std::string> local_address_to(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
      failed != 0) {
    return Error(Code::kUnavailable, host + ": " + gai_strerror(failed));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  for (const int family :
       {AF_INET, AF_INET6}) {  // IPv4 first: pods of the process runner have IPv4 addresses
    for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      if (std::string source = source_of_route(*one); !source.empty()) return source;
    }
  }
  return Error(Code::kUnavailable, "no route to " + host);
}

}  // namespace varda::net
