//! `#[boxed]`: makes an async function return a boxed future.
//!
//! Idea: an async function's body is compiled in every crate that polls its future: the program alone would
//! compile most of the engine, and so would each test. Behind a box, the body is compiled once, in its own
//! crate. A call costs a small allocation, next to nothing beside a read; loops over cached blocks call
//! unboxed functions.
//!
//! ```text
//!   #[boxed]                              fn read<'boxed>(&'boxed self, at: &'boxed Place)
//!   async fn read(&self, at: &Place)  ->      -> Pin<Box<dyn Future<Output = Bytes> + Send + 'boxed>>
//!       -> Bytes { ... }                  { Box::pin(async move { ... }) }
//! ```
//!
//! All references and `'_` share one lifetime, the future's (except in closure arguments); named lifetimes
//! must outlive it. Functions with type parameters or `impl Trait` arguments cannot be boxed: each caller
//! compiles them anyway.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;
use quote::{format_ident, quote};
use syn::visit_mut::{VisitMut, visit_type_reference_mut};
use syn::{
    Error, FnArg, GenericParam, ItemFn, Lifetime, ParenthesizedGenericArguments, Pat, PatIdent, PatType,
    ReturnType, Signature, TypeReference, WherePredicate, parse_macro_input, parse_quote,
};

/// Boxes an async function's future: see the crate.
#[proc_macro_attribute]
pub fn boxed(_: TokenStream, function: TokenStream) -> TokenStream {
    let function = parse_macro_input!(function as ItemFn);
    expand(function).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(function: ItemFn) -> Result<proc_macro2::TokenStream, Error> {
    let ItemFn { attrs, vis, mut sig, block } = function;
    if sig.asyncness.take().is_none() {
        return Err(Error::new_spanned(&sig.ident, "#[boxed] stands on async functions"));
    }
    share_lifetime(&mut sig)?;
    let output = match &sig.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, output) => quote!(#output),
    };
    let taken = take_arguments(&mut sig);
    let body = &block.stmts;
    let future = quote!(::std::pin::Pin<Box<dyn Future<Output = #output> + Send + 'boxed>>);
    sig.output = parse_quote!(-> #future);
    Ok(quote! {
        #(#attrs)*
        #vis #sig {
            Box::pin(async move {
                #(#taken)*
                #(#body)*
            })
        }
    })
}

/// Names all elided lifetimes `'boxed`, which others outlive.
fn share_lifetime(sig: &mut Signature) -> Result<(), Error> {
    for parameter in &sig.generics.params {
        if !matches!(parameter, GenericParam::Lifetime(_)) {
            return Err(Error::new_spanned(parameter, "#[boxed] functions have no type parameters"));
        }
    }
    let named: Vec<Lifetime> = sig.generics.lifetimes().map(|p| p.lifetime.clone()).collect();
    for argument in &mut sig.inputs {
        match argument {
            FnArg::Receiver(receiver) => {
                if let Some((_, lifetime)) = &mut receiver.reference {
                    lifetime.get_or_insert_with(boxed_lifetime);
                }
                Elided.visit_type_mut(&mut receiver.ty);
            }
            FnArg::Typed(typed) => Elided.visit_type_mut(&mut typed.ty),
        }
    }
    if let ReturnType::Type(_, output) = &mut sig.output {
        Elided.visit_type_mut(output);
    }
    sig.generics.params.insert(0, parse_quote!('boxed));
    let outlives = named.iter().map(|name| -> WherePredicate { parse_quote!(#name: 'boxed) });
    sig.generics.make_where_clause().predicates.extend(outlives);
    Ok(())
}

/// Moves all arguments into the future, as unused ones must live as long, too.
fn take_arguments(sig: &mut Signature) -> Vec<proc_macro2::TokenStream> {
    let typed = sig.inputs.iter_mut().enumerate().filter_map(|(index, argument)| match argument {
        FnArg::Typed(typed) => Some((index, typed)),
        FnArg::Receiver(_) => None,
    });
    let take = |(index, typed): (usize, &mut PatType)| {
        let pattern = typed.pat.clone();
        let name = match &*pattern {
            Pat::Ident(PatIdent { ident, .. }) => ident.clone(),
            _ => format_ident!("argument_{index}"),
        };
        *typed.pat = parse_quote!(#name);
        quote!(let #pattern = #name;)
    };
    typed.map(take).collect()
}

fn boxed_lifetime() -> Lifetime {
    parse_quote!('boxed)
}

struct Elided;

impl VisitMut for Elided {
    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        reference.lifetime.get_or_insert_with(boxed_lifetime);
        visit_type_reference_mut(self, reference);
    }

    /// Closure arguments live only for their call.
    fn visit_parenthesized_generic_arguments_mut(&mut self, _: &mut ParenthesizedGenericArguments) {}

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == "_" {
            *lifetime = boxed_lifetime();
        }
    }
}
