// std::format for standard libraries that lack it (GCC before 13).
//
// mlx-c uses it in a few error messages, with plain {} fields only. This header
// is force-included and does nothing where the library has the real one. The
// format string is checked at compile time: a field other than {}, or a number
// of fields that differs from the number of arguments, does not compile.
#pragma once
#include <version>
#ifndef __cpp_lib_format
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace godflash_shim {

void format_string_has_a_field_other_than_braces();
void format_string_does_not_fit_its_arguments();

template <typename... Args>
struct checked_format {
  std::string_view text;

  template <std::size_t N>
  consteval checked_format(const char (&literal)[N]) : text(literal, N - 1) {
    std::size_t fields = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '{' && i + 1 < text.size() && text[i + 1] == '}') {
        ++fields;
        ++i;
      } else if (text[i] == '{' || text[i] == '}') {
        format_string_has_a_field_other_than_braces();
      }
    }
    if (fields != sizeof...(Args)) {
      format_string_does_not_fit_its_arguments();
    }
  }
};

inline void put_until_field(std::ostringstream& out, std::string_view& text) {
  const std::size_t at = text.find('{');
  out << text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 2);
}

}  // namespace godflash_shim

namespace std {

template <typename... Args>
string format(
    godflash_shim::checked_format<type_identity_t<Args>...> pattern,
    const Args&... args) {
  ostringstream out;
  out << boolalpha;
  string_view text = pattern.text;
  ((godflash_shim::put_until_field(out, text), out << args), ...);
  out << text;
  return out.str();
}

}  // namespace std
#endif
