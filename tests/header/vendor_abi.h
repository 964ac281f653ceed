// Compares a function type or structure member of ours with the vendor's: not the names, but what reaches the machine.
// An enum is as good as an integer of its size, a pointer as a pointer to something of the same size.
#pragma once

#include <type_traits>

namespace vendor {

template <class T>
concept Complete = requires { sizeof(T); };
template <class T>
concept Number = std::is_integral_v<T> || std::is_enum_v<T>;

template <class Ours, class Theirs> struct SameAbi : std::false_type {};

template <class Ours, class Theirs>
  requires Number<Ours> && Number<Theirs>
struct SameAbi<Ours, Theirs> : std::bool_constant<sizeof(Ours) == sizeof(Theirs)> {};

template <> struct SameAbi<void, void> : std::true_type {};

// What pointers point to: numbers and pointers alike, structures of one size; void and hidden structures are alike to
// all but numbers.
template <class Ours, class Theirs> constexpr bool same_pointee() {
  if constexpr (Number<Ours> || Number<Theirs> || std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>)
    return SameAbi<Ours, Theirs>::value;
  else if constexpr (Complete<Ours> && Complete<Theirs>)
    return sizeof(Ours) == sizeof(Theirs);
  else
    return true;
}

template <class Ours, class Theirs>
  requires(!std::is_function_v<Ours> && !std::is_function_v<Theirs>)
struct SameAbi<Ours *, Theirs *>
    : std::bool_constant<same_pointee<std::remove_cv_t<Ours>, std::remove_cv_t<Theirs>>()> {};

template <class OurResult, class... Ours, class TheirResult, class... Theirs>
  requires(sizeof...(Ours) == sizeof...(Theirs))
struct SameAbi<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<SameAbi<OurResult, TheirResult>::value && (SameAbi<Ours, Theirs>::value && ...)> {};

template <class OurFunction, class TheirFunction> constexpr bool same_function(TheirFunction *) {
  return SameAbi<std::decay_t<OurFunction>, TheirFunction *>::value;
}

static_assert(SameAbi<int (*)(const void *, unsigned), int (*)(struct Hidden *, unsigned)>::value);
static_assert(!SameAbi<int (*)(void *), int (*)(void *, unsigned)>::value);
static_assert(!SameAbi<int (*)(unsigned), int (*)(unsigned long)>::value);
static_assert(!SameAbi<int (*)(unsigned), int (*)(void *)>::value);
static_assert(!SameAbi<int (*)(unsigned *), int (*)(unsigned long *)>::value);

} // namespace vendor
